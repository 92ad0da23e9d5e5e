// The audit log: each change of a policy with its author, its time and its difference.
import {ErrorNote, html, Page, policyLink, Time, useEffect, useState} from './ui.js';
import {api} from './api.js';
import {changes, content} from './policy.js';
import {Diff} from './diff.js';
import {words} from './history.js';

const page = 100; // revisions at a time

export function Audit() {
  const [state, setState] = useState({entries: [], busy: true});
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
  return html`
    <${Page} title="Audit log" actions=${html`<button type="button" disabled=${busy} onClick=${() => load()}>Refresh</button>`}>
      ${entries.length > 0 && html`
        <table class="audit cards">
          <thead><tr>
            <th scope="col" class="number">Revision</th><th scope="col">When</th><th scope="col">Who</th>
            <th scope="col">What</th><th scope="col">Policy</th><th scope="col">Change</th>
          </tr></thead>
          <tbody>${entries.map(e => html`<${Entry} key=${e.revision + e.name} e=${e} />`)}</tbody>
        </table>`}
      ${entries.length === 0 && !error && html`<p class="empty" role="status">${busy ? 'Loading…' : 'No policy has been changed yet.'}</p>`}
      <${ErrorNote} error=${error} />
      ${next && html`<button type="button" disabled=${busy} onClick=${() => load(next)}>${busy ? 'Loading…' : 'Show older'}</button>`}
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
      <td class="what">${list.length === 0 ? html`<span class="muted">no field</span>`
        : html`<details><summary>${list.map(c => c.path).join(', ')}</summary><${Diff} from=${content(e.from)} to=${content(e.to)} /></details>`}</td>
    </tr>`;
}
