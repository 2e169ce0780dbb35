"""The report's style sheet: one column on a phone, light and dark."""

STYLE = """
:root { --paper: #fff; --ink: #1b1f24; --faint: #59636e; --rule: #d9dee3; --card: #f6f8fa;
  --c0: #0b62c4; --c1: #c2410c; --c2: #15803d; --c3: #a21caf; --c4: #7a6a00; --c5: #0e7490;
  --c6: #be123c; --c7: #4d5966; --c8: #4338ca; --c9: #92400e; --c10: #4d7c0f; --c11: #9d174d; }
@media (prefers-color-scheme: dark) {
  :root { --paper: #0f1318; --ink: #e6eaee; --faint: #9aa5b1; --rule: #2b333c; --card: #171d24;
    --c0: #6cb2ff; --c1: #ff9a5c; --c2: #5fd38a; --c3: #e58bf2; --c4: #e6e05a; --c5: #5fd0e0;
    --c6: #ff7d95; --c7: #aab4bf; --c8: #a5a0ff; --c9: #d6a36b; --c10: #b5d66b;
    --c11: #ffa3cf; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif; }
main { max-width: 1240px; margin: 0 auto; padding: 16px; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: .5rem 0; }
h2 { font-size: 1.3rem; margin: 2.2rem 0 .6rem; border-top: 1px solid var(--rule);
  padding-top: 1rem; }
h3 { font-size: 1.05rem; margin: 1.4rem 0 .5rem; }
nav { display: flex; flex-wrap: wrap; gap: .3rem 1rem; }
a { color: var(--c0); }
dt { font-weight: 600; } dd { margin: 0 0 .4rem; color: var(--faint); }
summary { cursor: pointer; }
.charts { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 360px), 1fr));
  gap: 14px; margin: .8rem 0; }
figure { margin: 0; padding: 10px; background: var(--card); border: 1px solid var(--rule);
  border-radius: 8px; }
figcaption { font-weight: 600; font-size: .92rem; margin-bottom: .3rem; }
svg { width: 100%; height: auto; display: block; }
svg text { font-size: 12px; fill: var(--faint); }
.grid { stroke: var(--rule); stroke-width: 1; }
.line { fill: none; stroke-width: 2; } .dot { stroke: var(--card); stroke-width: 1; }
.legend { display: flex; flex-wrap: wrap; gap: .1rem .9rem; font-size: .85rem; }
.key { display: inline-block; width: .8em; height: .8em; border-radius: 50%; margin-right: .35em; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .88rem; width: 100%; }
th, td { text-align: left; padding: .3rem .7rem .3rem 0; border-bottom: 1px solid var(--rule);
  white-space: nowrap; vertical-align: top; }
th { color: var(--faint); font-weight: 600; }
td:last-child { white-space: normal; }
td:last-child:nth-child(6) { min-width: 26rem; }
""" + "\n".join(
    f".line.c{n} {{ stroke: var(--c{n}); }} .dot.c{n} {{ fill: var(--c{n}); }} "
    f".key.c{n} {{ background: var(--c{n}); }}" for n in range(12)) + "\n"
