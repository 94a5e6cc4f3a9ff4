"""The look of every picture, and of the report page, in light and in dark."""

DRAWING = """
svg text{font:10.5px system-ui,-apple-system,"Segoe UI",Roboto,Arial,sans-serif;fill:var(--faint);
font-variant-numeric:tabular-nums}
svg .label{font-size:11px;fill:var(--soft)}
svg .note,svg .name,svg .value{font-size:12px;fill:var(--ink)}
svg .note,svg .head{font-weight:600}
svg .grid{stroke:var(--line)}
svg .axis{stroke:var(--axis)}
svg .reference{stroke:var(--faint);stroke-dasharray:4 4}
svg .line,svg .thin{fill:none;stroke-width:2;stroke-linejoin:round;stroke-linecap:round}
svg .thin{stroke-width:1;opacity:.7}
svg .one{--tone:var(--one)}
svg .two{--tone:var(--two)}
svg .three{--tone:var(--three)}
svg .four{--tone:var(--four)}
svg .plain{--tone:var(--plain)}
svg .good{--tone:var(--good)}
svg .warn{--tone:var(--wait)}
svg .bad{--tone:var(--bad)}
svg .line,svg .thin,svg .whisker{stroke:var(--tone,var(--ink))}
svg .dot,svg .bar{fill:var(--tone)}
svg .dot{stroke:var(--card);stroke-width:1.5}
svg .track{fill:var(--line)}
svg .side{fill:var(--tone);opacity:.22}
svg .hover{fill:transparent;stroke:transparent;stroke-width:8}
svg .hover:hover{fill:var(--tone)}
svg .whisker{fill:none;stroke-width:1.25}
"""
"""Of the drawings; the colours come from around them."""

IMAGE = """
svg{--ink:#7b7f89;--soft:#7b7f89;--faint:#858994;--line:#85899440;--axis:#85899499;
--card:transparent;--one:#3b86de;--two:#e0682f;--three:#2fa36b;--four:#a56fd0;--plain:#9a9ca3;
--good:#2b9a41;--wait:#c08415;--bad:#d84f4f}
"""
"""Middle tones on no ground at all: an image does not know the theme of the page it is on."""

STYLE = """
:root{color-scheme:light dark;--page:#f6f6f3;--card:#fdfdfc;--ink:#10100f;--soft:#52514e;
--faint:#77756f;--line:#e4e3dd;--axis:#bdbcb4;--one:#2a78d6;--two:#d9591f;--three:#178a5a;--four:#8450b4;--plain:#b9b8b1;
--good:#0a7a1c;--good-back:#e8f4e8;--bad:#b42727;--bad-back:#fbeaea;--wait:#8a5a00;--wait-back:#faf1dd}
@media (prefers-color-scheme:dark){:root{--page:#0e0e0d;--card:#191918;--ink:#f7f7f5;--soft:#c3c2b7;
--faint:#98968e;--line:#2c2c2a;--axis:#4a4a46;--one:#4a94ea;--two:#e8743f;--three:#3dbb84;--four:#b78ae0;--plain:#5c5b57;
--good:#4cc65f;--good-back:#122416;--bad:#f07a7a;--bad-back:#2b1516;--wait:#e0b04a;--wait-back:#2a2210}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);
font:15px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif}
main{max-width:1080px;margin:0 auto;padding:40px 24px 56px}
h1{font-size:30px;line-height:1.2;margin:0 0 6px;letter-spacing:-.015em}
h2{font-size:18px;margin:44px 0 4px;letter-spacing:-.005em}
h3{font-size:14px;margin:0 0 2px}
p{margin:0}
.lead{color:var(--soft);max-width:72ch}
.ways{font-size:13.5px;margin-top:8px}
a{color:var(--one)}
.about{color:var(--soft);font-size:13.5px;margin:0 0 14px;max-width:80ch}
.eyebrow{color:var(--faint);font-size:13px;margin-bottom:6px}
.verdict{margin:26px 0 22px;padding:18px 22px;border-radius:12px;
border:1px solid;border-left-width:6px}
.verdict strong{display:block;font-size:21px;line-height:1.3}
.verdict p,.verdict li{color:var(--ink)}
.verdict ul{margin:8px 0 0;padding-left:20px}
.verdict.good{background:var(--good-back);border-color:var(--good)}
.verdict.good strong{color:var(--good)}
.verdict.bad{background:var(--bad-back);border-color:var(--bad)}
.verdict.bad strong{color:var(--bad)}
.verdict.wait{background:var(--wait-back);border-color:var(--wait)}
.verdict.wait strong{color:var(--wait)}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(220px,42%),1fr));gap:12px}
.tile,.card{background:var(--card);border:1px solid var(--line);border-radius:12px}
.tile{padding:14px 16px}
.tile b{display:block;font-size:25px;line-height:1.25;font-weight:620;letter-spacing:-.01em}
.tile span{display:block;font-size:13px;color:var(--soft)}
.tile small{color:var(--faint);font-size:12.5px}
.grid{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(300px,100%),1fr));gap:14px}
.grid.two{grid-template-columns:repeat(auto-fit,minmax(min(380px,100%),1fr))}
.card{padding:16px 18px 12px}
.card svg{display:block;width:100%;height:auto;max-width:560px;margin:6px auto 0;overflow:visible}
.card>p{color:var(--soft);font-size:13px;min-height:20px}
.scroll{overflow-x:auto;background:var(--card);border:1px solid var(--line);border-radius:12px}
table{border-collapse:collapse;width:100%;font-size:14px}
th,td{text-align:left;padding:9px 13px;border-bottom:1px solid var(--line);vertical-align:top}
tbody tr:last-child>*{border-bottom:0}
thead th{color:var(--faint);font-weight:560;font-size:12.5px;white-space:nowrap}
tbody th{font-weight:560;white-space:nowrap}
.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
td.why{min-width:270px}
td.span{white-space:nowrap}
tr.first>*{border-top:2px solid var(--line)}
tr.own{background:color-mix(in srgb,var(--one) 8%,transparent)}
.pass,.fail{white-space:nowrap;font-weight:620}
.pass{color:var(--good)}
.fail{color:var(--bad)}
.meter{display:block;width:84px;height:7px;margin-top:8px;border-radius:4px;background:var(--line)}
.meter i{display:block;height:100%;border-radius:4px;background:var(--one)}
code{font:12.5px/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;overflow-wrap:anywhere}
details summary{cursor:pointer;color:var(--soft)}
details ul{margin:6px 0 2px;padding:0;list-style:none;columns:2 240px;font-size:12.5px;
color:var(--soft)}
footer{margin-top:44px;padding-top:16px;border-top:1px solid var(--line);
color:var(--faint);font-size:13px}
footer dl{display:grid;grid-template-columns:max-content 1fr;gap:4px 18px;margin:0}
footer dt{color:var(--soft)}
footer dd{margin:0}
@media print{body{background:#fff}.card,.tile,.scroll{break-inside:avoid}}
"""
