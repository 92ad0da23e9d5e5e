// The audit log: each change of a policy with its author, its time, its reason and its difference.
import {Empty, ErrorNote, Filter, html, Page, policyLink, Time, useEffect, useState} from './ui.js';
import {api} from './api.js';
import {changes, content} from './policy.js';
import {Diff} from './diff.js';
import {csv, download} from './download.js';
import {words} from './history.js';
import {plural} from './format.js';

const page = 100; // revisions at a time
const mostPages = 100; // of an export, of 1,000 revisions each

const paths = e => changes(content(e.from), content(e.to)).map(c => c.path).join(', ');
const text = e => [e.by, words[e.action] ?? e.action, e.name, e.reason, paths(e)].join(' ').toLowerCase();

// save downloads all of the log that matches.
async function save(matches) {
  const rows = [['Revision', 'When', 'Who', 'What', 'Policy', 'Version', 'Reason', 'Fields', 'From', 'To']];
  let before;
  for (let i = 0; i < mostPages; i++) {
    const data = await api.audit(1000, before);
    for (const e of data.entries.filter(matches)) {
      rows.push([e.revision, e.at, e.by, e.action, e.name, e.version, e.reason, paths(e), JSON.stringify(content(e.from)), JSON.stringify(content(e.to))]);
    }
    before = data.next;
    if (!before) break;
  }
  download('audit.csv', [csv(rows)], 'text/csv');
}

export function Audit({query, me}) {
  const [state, setState] = useState({entries: [], busy: true});
  const {filter = ''} = query;
  async function load(before) {
    setState(s => ({...s, busy: true, error: null}));
    try {
      const data = await api.audit(page, before);
      setState(s => ({entries: before ? [...s.entries, ...data.entries] : data.entries, next: data.next, busy: false}));
    } catch (error) {
      setState(s => ({...s, busy: false, error}));
    }
  }
  useEffect(() => { load(); }, []);
  const {entries, next, busy, error} = state;
  const matches = e => text(e).includes(filter.toLowerCase());
  const shown = entries.filter(matches);
  const exporting = () => {
    setState(s => ({...s, busy: true, error: null}));
    save(matches).catch(err => setState(s => ({...s, error: err}))).finally(() => setState(s => ({...s, busy: false})));
  };
  return html`
    <${Page} title="Audit log" copy=${{path: `/v1/audit?limit=${page}`, me}} actions=${html`
      <button type="button" disabled=${busy} onClick=${exporting}>Download CSV</button>
      <button type="button" disabled=${busy} onClick=${() => load()}>Refresh</button>`}>
      <div class="toolbar"><${Filter} label="Who, what, policy or reason with" name="filter" query=${query} />
        <span class="muted" role="status">${entries.length > 0 && `${plural(shown.length, 'change')}${next ? ' of the latest' : ''}`}</span></div>
      ${shown.length > 0 && html`
        <table class="audit cards">
          <thead><tr>
            <th scope="col" class="number">Revision</th><th scope="col">When</th><th scope="col">Who</th>
            <th scope="col">What</th><th scope="col">Policy</th><th scope="col">Reason</th><th scope="col">Change</th>
          </tr></thead>
          <tbody>${shown.map(e => html`<${Entry} key=${e.revision + e.name} e=${e} />`)}</tbody>
        </table>`}
      ${shown.length === 0 && !error && html`<${Empty}>${busy ? 'Loading…' : filter ? 'No change here matches; older ones may.' : 'No policy has been changed yet.'}<//>`}
      <${ErrorNote} error=${error} />
      ${next && html`<div class="pages"><button type="button" disabled=${busy} onClick=${() => load(next)}>${busy ? 'Loading…' : 'Show older'}</button></div>`}
    <//>`;
}

function Entry({e}) {
  const list = changes(content(e.from), content(e.to));
  return html`
    <tr>
      <td class="number" data-label="Revision">${e.revision}</td>
      <td data-label="When"><${Time} at=${e.at} /></td>
      <td data-label="Who">${e.by}</td>
      <td data-label="What"><span class="badge ${e.action === 'deleted' ? 'bad' : ''}">${words[e.action] ?? e.action}</span></td>
      <th scope="row" class="code" data-label="Policy">${e.name && html`<a href=${policyLink(e.name)}>${e.name}</a>${' '}<small>version ${e.version}</small>`}</th>
      <td class="what" data-label="Reason">${e.reason ?? html`<span class="muted">–</span>`}</td>
      <td class="what">${list.length === 0 ? html`<span class="muted">no field</span>`
        : html`<details><summary>${list.map(c => c.path).join(', ')}</summary><${Diff} from=${content(e.from)} to=${content(e.to)} /></details>`}</td>
    </tr>`;
}
