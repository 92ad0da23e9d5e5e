// All versions of a policy with their authors, the difference between any two,
// and rollback to an earlier one.
import {denied, Guarded, html, Time, useEffect, useState} from './ui.js';
import {api} from './api.js';
import {changes, content} from './policy.js';
import {Confirm, Reason} from './change.js';
import {Diff} from './diff.js';
import {Effects} from './effects.js';

export const words = {created: 'created', updated: 'changed', deleted: 'deleted', rolled_back: 'rolled back', seeded: 'seeded', new_series: 'new series'};

export function History({name, policy, policies, me, onSaved}) {
  const [state, setState] = useState({});
  const [back, setBack] = useState(null); // the version to go back to
  const [reason, setReason] = useState('');
  // A new version means that there is more to load.
  useEffect(() => {
    const stop = new AbortController();
    api.history(name, stop.signal)
      .then(data => setState({versions: data.versions}))
      .catch(error => { if (!stop.signal.aborted) setState(error.status === 404 ? {versions: []} : {error}); });
    return () => stop.abort();
  }, [name, policy?.version]);
  const {versions, error} = state;
  async function rollback() {
    const saved = await api.rollback(name, back.version, policy?.version, reason.trim());
    setBack(null);
    setReason('');
    onSaved(saved);
  }
  return html`
    <section class="card" aria-label="History">
      <h2>History</h2>
      ${error ? html`<p class="empty">The history cannot be shown: ${error.message}.</p>`
        : !versions ? html`<p class="empty">Loading…</p>`
        : versions.length === 0 ? html`<p class="empty">None yet.</p>`
        : html`
          <${Compare} versions=${versions} />
          <ol class="history">${versions.map((v, i) => html`
            <${Version} key=${v.version} v=${v} before=${versions[i + 1]} last=${i === 0} name=${name} me=${me} onBack=${() => setBack(v)} />`)}
          </ol>`}
      ${back && html`
        <${Confirm} title="Roll ${name} back to version ${back.version}" verb="Roll back" act=${rollback} onClose=${() => setBack(null)}>
          <p>This makes a new version with the content that <b>${back.by}</b> saved at <${Time} at=${back.at} />. The history
            shows it as a rollback to that version, and the audit log also shows your name.</p>
          <${Diff} from=${content(policy)} to=${content(back.policy)} name=${name} policies=${policies} />
          <${Effects} name=${name} doc=${content(back.policy)} />
          <${Reason} value=${reason} onChange=${setReason} />
        <//>`}
    </section>`;
}

function Version({v, before, last, name, me, onBack}) {
  const list = changes(content(before?.policy), content(v.policy));
  const no = denied(me, 'editor', name);
  return html`
    <li>
      <div class="line">
        <span><b>${v.version}</b>${' '}<span class="badge">${words[v.action] ?? v.action}${v.to ? ` to ${v.to}` : ''}</span></span>
        <span class="muted"><${Time} at=${v.at} /> by <b>${v.by}</b></span>
        ${last ? html`<span class="muted">latest</span>`
          : v.policy && html`<${Guarded} denied=${no} class="quiet" aria-label="Roll back to version ${v.version}…" onClick=${onBack}>Roll back…<//>`}
      </div>
      ${v.reason && html`<div class="reason">${v.reason}</div>`}
      ${v.policy && list.length > 0 && html`
        <details><summary>${list.map(c => c.path).join(', ')}</summary><${Diff} from=${content(before?.policy)} to=${content(v.policy)} /></details>`}
    </li>`;
}

// Compare shows the difference between two versions, at first the last two.
function Compare({versions}) {
  const [pair, setPair] = useState([null, null]);
  if (versions.length < 2) return null;
  const [a, b] = [pair[0] ?? versions[1].version, pair[1] ?? versions[0].version];
  const of = n => versions.find(v => v.version === n)?.policy;
  const choose = (value, label, set) => html`
    <select aria-label=${label} value=${String(value)} onChange=${e => set(Number(e.target.value))}>
      ${versions.map(v => html`<option key=${v.version} value=${String(v.version)}>version ${v.version}${v.policy ? '' : ' (deleted)'}</option>`)}
    </select>`;
  return html`
    <details class="compare"><summary>Compare versions</summary>
      <div class="line">${choose(a, 'From version', n => setPair([n, b]))}<span aria-hidden="true">→</span>${choose(b, 'To version', n => setPair([a, n]))}</div>
      <${Diff} from=${content(of(a))} to=${content(of(b))} />
    </details>`;
}
