// The list of policies, and the page of one: create, edit and delete it.
import {denied, Filter, Guarded, html, Page, PausedGroups, policyLink, Time, topicLink, useId, useState, Waiting} from './ui.js';
import {api} from './api.js';
import {changes, content, fieldOf, isGlob, pausedGroups, shown} from './policy.js';
import {plural} from './format.js';
import {useLive} from './live.js';
import {Confirm, Reason} from './change.js';
import {Diff} from './diff.js';
import {Editor} from './editor.js';
import {Effects} from './effects.js';
import {InForce} from './inforce.js';
import {History} from './history.js';
import {Schemas} from './schemas.js';
import {quote} from './copy.js';
import {Rollout} from './rollout.js';

const nothing = {}; // what a policy sets once it is deleted
const page = 200; // rows at first, and with each "more"

export function Policies({me, query}) {
  const poll = useLive('/v1/policies', {every: 60_000, list: 'policy'});
  const [most, setMost] = useState(page);
  const all = poll.data?.policies ?? [];
  const wanted = (query.filter ?? '').toLowerCase();
  const rows = all.filter(p => p.name.toLowerCase().includes(wanted)).sort((a, b) => a.name.localeCompare(b.name));
  return html`
    <${Page} title="Policies" poll=${poll} copy=${{path: '/v1/policies', cli: 'sluice policy list', me}} actions=${html`<${New} me=${me} />`}>
      <div class="toolbar">
        <${Filter} label="Filter policies" name="filter" query=${query} />
        <span class="muted" role="status">${poll.data && (wanted ? `${rows.length} of ${plural(all.length, 'policy', 'policies')}` : plural(all.length, 'policy', 'policies'))}</span>
      </div>
      ${!poll.data ? html`<${Waiting} poll=${poll} />`
        : rows.length === 0 ? html`<p class="empty">${all.length ? 'No policy matches the filter.' : 'No policies yet: every topic has the defaults.'}</p>`
        : html`
          <table class="policies cards">
            <thead><tr><th scope="col">Name</th><th scope="col">Sets</th><th scope="col" class="number">Version</th>
              <th scope="col">Updated</th><th scope="col">By</th></tr></thead>
            <tbody>${rows.slice(0, most).map(p => html`
              <tr key=${p.name}>
                <th scope="row" class="code"><a href=${policyLink(p.name)}>${p.name}</a>${p.paused && html` <span class="badge warn">paused</span>`}
                  <${PausedGroups} names=${pausedGroups(p.name, [p])} /></th>
                <td class="sets"><${Sets} policy=${p} /></td>
                <td class="number" data-label="Version">${p.version}</td>
                <td data-label="Updated"><${Time} at=${p.updated_at} /></td>
                <td data-label="By">${p.updated_by}</td>
              </tr>`)}
            </tbody>
          </table>`}
      ${rows.length > most && html`<button type="button" onClick=${() => setMost(most + page)}>Show ${Math.min(page, rows.length - most)} more</button>`}
    <//>`;
}

const mostSet = 40; // fields of a policy in the list: it may have limits for many groups

// Sets shows a policy on one line.
function Sets({policy}) {
  const set = changes({}, content(policy));
  if (set.length === 0) return html`<span class="muted">nothing</span>`;
  return html`${set.slice(0, mostSet).map(({path, to}) => html`<span key=${path} class="set"><span class="muted">${path}</span> ${fieldOf(path)?.kind === 'json' && to !== null ? '{…}' : shown(to)}</span> `)}
    ${set.length > mostSet && html`<span class="muted">+${set.length - mostSet}</span>`}`;
}

// New opens the page of a name, where the policy is created.
function New({me}) {
  const id = useId();
  const [name, setName] = useState('');
  const no = denied(me, 'editor');
  const valid = /^[A-Za-z0-9._-]*\*?$/.test(name) && name.length <= 255;
  const go = e => {
    e.preventDefault();
    if (name && valid && !no) location.hash = policyLink(name);
  };
  return html`
    <form class="new" onSubmit=${go}>
      ${no && html`<span class="muted">${no}</span>`}
      <label class="hidden" for=${id}>Name of a new policy: a topic, or a prefix and *</label>
      <input id=${id} type="text" value=${name} placeholder="orders.created or orders.*" disabled=${Boolean(no)} autocomplete="off" spellcheck=${false}
        aria-invalid=${valid ? 'false' : 'true'} aria-describedby="${id}-error" onInput=${e => setName(e.target.value.trim())} />
      <${Guarded} type="submit" denied=${no} disabled=${!name || !valid}>New policy<//>
      <small id="${id}-error" class="error" aria-live="polite">${valid ? '' : 'A-Z a-z 0-9 . _ - and a * at the end, at most 255'}</small>
    </form>`;
}

// Policy is the page of one policy: its fields, history and schemas.
export function Policy({name, me}) {
  const poll = useLive('/v1/policies', {every: 60_000, list: 'policy'});
  const [change, setChange] = useState(null);
  const [deleting, setDeleting] = useState(false);
  const [reason, setReason] = useState('');
  const policies = poll.data?.policies;
  const policy = policies?.find(p => p.name === name) ?? null;
  const no = denied(me, 'admin');
  const arrived = (version, deleted) => {
    setChange({name, version, deleted, at: Date.now()});
    poll.refresh();
  };
  async function remove() {
    await api.remove(name, policy.version, reason.trim());
    setDeleting(false);
    arrived(policy.version + 1, true);
  }
  return html`
    <${Page} title=${name} code poll=${poll} copy=${{path: '/v1/policies/' + encodeURIComponent(name), cli: `sluice policy get ${quote(name)}`, me}} actions=${policies && html`
      ${policy ? html`<span class="muted">version ${policy.version} by ${policy.updated_by}</span>` : html`<span class="badge">no such policy</span>`}
      ${!isGlob(name) && html`<a class="button" href=${topicLink(name)}>Topic</a>`}
      ${policy && html`<${Guarded} denied=${no} class="danger" onClick=${() => setDeleting(true)}>Delete…<//>`}`}>
      ${!policies ? html`<${Waiting} poll=${poll} />` : html`
        ${change && html`<${Rollout} key=${change.version} change=${change} onDone=${() => setChange(null)} />`}
        <div class="columns">
          <section class="card" aria-label="Fields">
            <h2>${policy ? 'Fields' : 'New policy'}</h2>
            <${Editor} key=${name} name=${name} policy=${policy} policies=${policies} me=${me} onSaved=${p => arrived(p.version)} />
          </section>
          <${History} name=${name} policy=${policy} policies=${policies} me=${me} onSaved=${p => arrived(p.version)} />
        </div>
        <${InForce} name=${name} policies=${policies} />
        <${Schemas} name=${name} policy=${policy} me=${me} />
        ${deleting && policy && html`
          <${Confirm} title="Delete ${name}" verb="Delete" danger act=${remove} onClose=${() => setDeleting(false)}>
            <p>Its topics inherit from the other policies then. The history stays, and a rollback restores the policy.</p>
            <${Diff} from=${content(policy)} to=${{}} name=${name} policies=${policies} />
            <${Effects} name=${name} doc=${nothing} />
            <${Reason} value=${reason} onChange=${setReason} />
          <//>`}`}
    <//>`;
}
