// A graph of the rates over the last minute: accepted events, and refused ones on
// top of them, so that the height is the demand.
import {html, useState} from './ui.js';
import {clock, perSecond} from './format.js';

const seconds = 60;
const hour = 3_600_000; // ms
const height = 100;

// ceiling is the next round number above n: a scale that follows every wiggle
// tells nothing.
function ceiling(n) {
  const power = 10 ** Math.floor(Math.log10(Math.max(n, 1)));
  return [1, 2, 3, 4, 5, 6, 8, 10].map(step => step * power).find(step => step >= n);
}

// corners are the points of a line of values; the latest stands at the right edge.
const corners = (values, top) => values.map((v, i) => `${seconds - values.length + i},${(height - (v / top) * height).toFixed(1)}`);

const line = (values, top) => 'M' + corners(values, top).join('L');

// area is the area between two lines: along the first and back along the second.
const area = (low, high, top) => 'M' + [...corners(high, top), ...corners(low, top).reverse()].join('L') + 'Z';

function shapes(history, top) {
  const points = history.slice(-seconds);
  const allowed = points.map(p => p.allowed);
  const total = points.map(p => p.allowed + p.denied);
  return html`
    <path class="allowed" d=${area(allowed.map(() => 0), allowed, top)} />
    <path class="denied" d=${area(allowed, total, top)} />
    <path class="line" d=${line(allowed, top)} />`;
}

const highest = history => Math.max(0, ...history.map(p => p.allowed + p.denied));

export function Sparkline({history = [], label}) {
  const top = ceiling(highest(history) * 1.05);
  return html`
    <svg class="sparkline" viewBox="0 0 ${seconds - 1} ${height}" preserveAspectRatio="none" role="img" aria-label=${label}>
      ${history.length > 1 && shapes(history, top)}
    </svg>`;
}

// Graph is the same, large: with a scale, and with the limit as a line.
export function Graph({history = [], limit, label}) {
  const top = ceiling(Math.max(highest(history), limit || 0) * 1.05);
  const y = limit ? height - (limit / top) * height : 0;
  return html`
    <figure class="graph">
      <div class="scale" aria-hidden="true"><span>${perSecond(top)}/s</span><span>${perSecond(top / 2)}</span><span>0</span></div>
      <svg viewBox="0 0 ${seconds - 1} ${height}" preserveAspectRatio="none" role="img" aria-label=${label}>
        <path class="grid" d="M0,0H59M0,50H59M0,100H59" />
        ${history.length > 1 && shapes(history, top)}
        ${limit > 0 && html`<path class="limit" d=${`M0,${y}H59`} />`}
      </svg>
      <figcaption><span>60 s ago</span>
        <span class="legend"><i class="allowed"></i>accepted <i class="denied"></i>refused ${limit > 0 && html`<i class="limit"></i>limit`}</span>
        <span>now</span></figcaption>
    </figure>`;
}

// Trend is a small line of points {at, value}.
export function Trend({points, label}) {
  const top = ceiling(Math.max(0, ...points.map(p => p.value)) * 1.05);
  const begin = points[0]?.at ?? 0, span = Math.max(1, (points.at(-1)?.at ?? 0) - begin);
  const path = points.map(p => `${(((p.at - begin) / span) * (seconds - 1)).toFixed(1)},${(height - (p.value / top) * height).toFixed(1)}`).join('L');
  return html`<svg class="sparkline" viewBox="0 0 ${seconds - 1} ${height}" preserveAspectRatio="none" role="img" aria-label=${label}>
    ${points.length > 1 && html`<path class="line" d=${'M' + path} />`}</svg>`;
}

// Plot is a line of points {at, value} from begin, an hour ago, to now. The pointer reads a point.
export function Plot({points, label, bad, unit = '/s', begin = Date.now() - hour}) {
  const [x, setX] = useState(null);
  const top = ceiling(Math.max(0, ...points.map(p => p.value)) * 1.05);
  const span = Math.max(1, Date.now() - begin);
  const at = p => [((p.at - begin) / span) * 100, height - (p.value / top) * height];
  const corners = points.map(at);
  const path = corners.map(([x, y]) => `${x.toFixed(2)},${y.toFixed(1)}`).join('L');
  const near = x === null ? undefined : points.reduce((best, p) => (!best || Math.abs(at(p)[0] - x) < Math.abs(at(best)[0] - x) ? p : best), undefined);
  const read = e => {
    const box = e.currentTarget.getBoundingClientRect();
    setX(((e.clientX - box.left) / box.width) * 100);
  };
  return html`
    <svg class="${bad ? 'of-bad' : ''}" viewBox="0 0 100 ${height}" preserveAspectRatio="none" role="img" aria-label=${label}
      onPointerMove=${read} onPointerLeave=${() => setX(null)}>
      <path class="grid" d="M0,0H100M0,50H100M0,100H100" />
      ${points.length > 1 && html`<path class="area" d=${`M${corners[0][0].toFixed(2)},${height}L${path}L${corners.at(-1)[0].toFixed(2)},${height}Z`} /><path class="line" d=${'M' + path} />`}
      ${near && html`<path class="grid" d=${`M${at(near)[0]},0V${height}`} />`}
    </svg>
    <div class="axis muted"><span>${near ? `${clock(near.at)}: ${perSecond(near.value)}${unit}` : span >= hour ? '1 h ago' : clock(begin)}</span><span>${perSecond(top)}${unit} at the top</span></div>`;
}
