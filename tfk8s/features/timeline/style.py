"""The style of the page, for light and dark screens."""

STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #59636e; --paper: #ffffff; --band: #f4f6f8; --rule: #d5dae0;
  --op: #9db8d9; --op-ink: #10233c; --path: #d9480f; --path-ink: #ffffff; --sent: #2f6f4f; --idle: #c3cad2;
  --sent-paper: #d8efe3; --path-paper: #ffe0d1; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8eaed; --soft: #a2abb5; --paper: #15181c; --band: #1e2329;
  --rule: #363d46; --op: #3f5f8a; --op-ink: #eef4fc; --path: #e8590c; --path-ink: #ffffff; --sent: #63c997;
  --idle: #3c444e; --sent-paper: #1d3b2d; --path-paper: #5a2a12; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.5rem; max-width: 90rem; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; margin: 0 0 .25rem; } h2 { font-size: 1.15rem; margin: 0; display: inline; }
h3 { font-size: 1rem; margin: 1.5rem 0 .5rem; }
p { margin: .25rem 0; } .soft { color: var(--soft); } code { font-size: .92em; overflow-wrap: anywhere; }
details { border-top: 1px solid var(--rule); margin-top: 1.25rem; padding-top: 1rem; } summary { cursor: pointer; }
table { border-collapse: collapse; width: 100%; font-size: 14px; } .wide { overflow-x: auto; }
th, td { text-align: left; padding: .2rem .9rem .2rem 0; border-bottom: 1px solid var(--rule); vertical-align: top; }
th { color: var(--soft); font-weight: 600; } td.n, th.n { text-align: right; font-variant-numeric: tabular-nums;
  white-space: nowrap; }
ol.causes { list-style: none; padding: 0; margin: .5rem 0; }
ol.causes li { position: relative; padding: .3rem .6rem; margin: 0 0 3px; background: var(--band);
  overflow-wrap: anywhere; }
ol.causes li i { position: absolute; inset: 0 auto 0 0; background: var(--path); opacity: .28; }
ol.causes li span { position: relative; }
.chart { display: flex; border: 1px solid var(--rule); }
.names { flex: 0 0 auto; width: 15rem; border-right: 1px solid var(--rule); font-size: 12px; line-height: 1.25; }
.names div { overflow: hidden; white-space: nowrap; text-overflow: ellipsis; padding: 2px 8px;
  border-bottom: 1px solid var(--rule); }
.names b { font-size: 13px; } .names .axis, .plot .axis { height: 22px; }
.scroll { flex: 1 1 auto; overflow-x: auto; overflow-y: hidden; min-width: 0; }
.plot { position: relative; width: 100%; }
.plot .axis, .plot .row { position: relative; border-bottom: 1px solid var(--rule); }
.plot .axis span { position: absolute; top: 3px; font-size: 11px; color: var(--soft); padding-left: 3px;
  border-left: 1px solid var(--rule); white-space: nowrap; }
.plot i { position: absolute; min-width: 1px; overflow: hidden; white-space: nowrap;
  font: 11px/16px system-ui, sans-serif; }
.plot i.idle { top: 0; bottom: 0; opacity: .55;
  background: repeating-linear-gradient(135deg, var(--idle) 0 1px, transparent 1px 7px); }
.plot i.op { height: 16px; background: var(--op); color: var(--op-ink);
  border-left: 1px solid var(--paper); padding: 0 2px; }
.plot i.sent { height: 16px; color: var(--ink); border: 1px solid var(--sent); background: var(--sent-paper);
  padding: 0 2px; line-height: 14px; }
.plot i.sent.path { border-color: var(--path); background: var(--path-paper); }
.plot i.op.path { background: var(--path); color: var(--path-ink); }
.plot i.thin { padding: 0; }
.plot svg { position: absolute; left: 0; top: 0; width: 100%; pointer-events: none; }
.plot line { stroke: var(--sent); stroke-width: 1; opacity: .6; vector-effect: non-scaling-stroke; }
.plot line.path { stroke: var(--path); stroke-width: 2.2; opacity: 1; }
.legend { font-size: 13px; color: var(--soft); margin: .4rem 0 0; display: flex; flex-wrap: wrap; gap: .2rem 1.2rem; }
.legend span::before { content: ""; display: inline-block; width: 14px; height: 10px; margin-right: .35rem; }
.legend .l-op::before { background: var(--op); } .legend .l-path::before { background: var(--path); }
.legend .l-sent::before { border: 1px solid var(--sent); background: var(--sent-paper); }
.legend .l-idle::before { background: repeating-linear-gradient(135deg, var(--idle) 0 2px, transparent 2px 5px);
  border: 1px solid var(--rule); }
@media (max-width: 40rem) { body { padding: .8rem; } .names { width: 8rem; } }
"""
