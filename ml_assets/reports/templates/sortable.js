"use strict";
(() => {
  const table = document.querySelector(".runs table");
  if (!table) return;
  const body = table.tBodies[0], heads = [...table.tHead.rows[0].cells];
  const key = (row, place) => row.cells[place].dataset.sort;
  const compare = (a, b, number) => number ? a - b : a.localeCompare(b);
  const sort = (head, place) => {
    const down = head.getAttribute("aria-sort") !== "descending";
    heads.forEach(other => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const number = head.classList.contains("n");
    const rows = [...body.rows].sort((one, two) => {
      const a = key(one, place), b = key(two, place);
      if (a === "" || b === "") return (a === "") - (b === "");
      return compare(a, b, number) * (down ? -1 : 1);
    });
    body.append(...rows);
  };
  heads.forEach((head, place) => {
    head.tabIndex = 0;
    head.addEventListener("click", () => sort(head, place));
    head.addEventListener("keydown", event => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      sort(head, place);
    });
  });
})();
