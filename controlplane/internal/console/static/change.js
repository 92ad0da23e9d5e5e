// The dialogs of a policy's change: the user sees what it changes, confirms it,
// and saves it on top of the version that was shown. If someone else has changed
// the policy since, the user sees that change.
import {Dialog, ErrorNote, html, Time, useId, useState} from './ui.js';
import {api} from './api.js';
import {apply, changes, content} from './policy.js';
import {Diff} from './diff.js';
import {Effects} from './effects.js';

// ChangeDialog saves doc as the policy of that name. base is the policy that its
// author began with, null for none. onInvalid gets the fields that were refused.
export function ChangeDialog({title, verb = 'Save', name, base, doc, policies, note, onSaved, onInvalid, onClose}) {
  const [state, setState] = useState({base, doc, reason: '', busy: false, error: null, theirs: undefined});
  const update = part => setState(s => ({...s, ...part}));

  async function save(e) {
    e.preventDefault();
    update({busy: true, error: null});
    try {
      onSaved(await api.save(name, state.doc, state.base?.version, state.reason.trim()));
    } catch (error) {
      if (error.status === 412) return conflict(error);
      if (error.status === 422 && onInvalid) return onInvalid(error);
      update({busy: false, error});
    }
  }

  async function conflict(error) {
    try {
      update({busy: false, theirs: await api.policy(name)});
    } catch {
      update({busy: false, error});
    }
  }

  // rebase applies the fields changed here to their policy.
  function rebase() {
    const mine = changes(content(state.base), state.doc);
    update({base: state.theirs, doc: apply(content(state.theirs), mine), theirs: undefined});
  }

  if (state.theirs !== undefined) {
    return html`<${Conflict} name=${name} base=${state.base} theirs=${state.theirs} doc=${state.doc} policies=${policies}
      onRebase=${rebase} onClose=${onClose} />`;
  }
  const nothing = state.base && changes(content(state.base), state.doc).length === 0;
  return html`
    <${Dialog} title=${title} onClose=${onClose}>
      <form onSubmit=${save}>
        ${note && html`<p>${note}</p>`}
        ${!state.base && html`<p>A new policy <code>${name}</code>. Unset fields are inherited.</p>`}
        <${Diff} from=${content(state.base)} to=${state.doc} name=${name} policies=${policies} />
        <${Effects} name=${name} doc=${state.doc} onInvalid=${onInvalid} />
        <${Reason} value=${state.reason} onChange=${reason => update({reason})} />
        <${ErrorNote} error=${state.error} />
        <div class="buttons">
          <button type="submit" class="primary" autofocus disabled=${state.busy || nothing}>${state.busy ? 'Saving…' : verb}</button>
          <button type="button" onClick=${onClose}>Cancel</button>
        </div>
      </form>
    <//>`;
}

// Reason asks why, for the history and the audit log.
export function Reason({needed, value, onChange}) {
  const id = useId();
  return html`<p><label for=${id}>Reason, for the audit log${!needed && html` <small class="muted">may be left out</small>`}</label>
    <input id=${id} type="text" class="wide" maxlength="300" value=${value} autocomplete="off" autofocus=${needed} onInput=${e => onChange(e.target.value)} /></p>`;
}

// Conflict shows a change that came first. The user can overwrite it only after
// seeing it.
function Conflict({name, base, theirs, doc, policies, onRebase, onClose}) {
  const mine = new Set(changes(content(base), doc).map(c => c.path));
  const both = changes(content(base), content(theirs)).filter(c => mine.has(c.path)).map(c => c.path);
  return html`
    <${Dialog} title="Someone else changed this policy" onClose=${onClose}>
      <div class="conflict">
        ${theirs
          ? html`<p><b>${theirs.updated_by}</b> saved version ${theirs.version} of <code>${name}</code> at <${Time} at=${theirs.updated_at} />. Your changes are not saved.</p>
            <h3>Their changes</h3>
            <${Diff} from=${content(base)} to=${content(theirs)} name=${name} policies=${policies} />`
          : html`<p>The policy <code>${name}</code> has been deleted. Your changes are not saved.</p>`}
        <h3>Your changes, applied to it</h3>
        <${Diff} from=${content(theirs)} to=${apply(content(theirs), changes(content(base), doc))} name=${name} policies=${policies} />
        ${both.length > 0 && html`<p class="note warn">Both of you changed ${both.join(', ')}: your values would replace theirs.</p>`}
        <div class="buttons">
          <button type="button" class="primary" autofocus onClick=${onRebase}>Apply my changes…</button>
          <button type="button" onClick=${onClose}>Cancel</button>
        </div>
      </div>
    <//>`;
}

// Confirm asks the user before it calls act, an async function. typed is a name that has to be typed for what cannot be undone.
export function Confirm({title, verb, danger, typed, ready = true, act, onClose, children}) {
  const id = useId();
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState(null);
  const [text, setText] = useState('');
  async function submit(e) {
    e.preventDefault();
    setBusy(true);
    setError(null);
    try {
      await act();
    } catch (err) {
      setError(err);
      setBusy(false);
    }
  }
  return html`
    <${Dialog} title=${title} onClose=${onClose}>
      <form onSubmit=${submit}>
        ${children}
        ${typed && html`<p><label for=${id}>Type <code>${typed}</code> to confirm</label>
          <input id=${id} type="text" class="wide" value=${text} autofocus autocomplete="off" spellcheck=${false} onInput=${e => setText(e.target.value)} /></p>`}
        <${ErrorNote} error=${error} />
        <div class="buttons">
          <button type="submit" class=${danger ? 'danger' : 'primary'} disabled=${busy || !ready || (typed && text !== typed)}
            autofocus=${!danger && !typed}>${busy ? 'Working…' : verb}</button>
          <button type="button" onClick=${onClose} autofocus=${danger && !typed}>Cancel</button>
        </div>
      </form>
    <//>`;
}
