// A policy as a form: the most used fields as inputs, and the whole policy as
// JSON. An empty input leaves its field unset, and shows the inherited value.
import {denied, Guarded, html, useEffect, useId, useMemo, useRef, useState} from './ui.js';
import {fields} from './fields.js';
import {changes, content, fieldOf, get, groupFields, groupNames, hint, inherited, matching, parse, same, set, shown} from './policy.js';
import {parseJSON} from './api.js';
import {plural} from './format.js';
import {ChangeDialog} from './change.js';
import {keepDraft, readDraft} from './draft.js';

const sections = ['Publish', 'Delivery'].map(title => ({title, fields: fields.filter(f => f.form === title)}));
const page = 20; // consumer groups at first, and with each "more"

// Editor edits the policy of a name; policy is the one in force, null for none.
export function Editor({name, policy, policies, me, onSaved}) {
  const kept = useMemo(() => readDraft(name), []);
  const [restored, setRestored] = useState(kept !== null);
  const [base, setBase] = useState(kept ? kept.base : policy);
  const [doc, setDoc] = useState(kept?.doc ?? content(policy));
  const [typed, setTyped] = useState({}); // path -> text, as long as it is being typed
  const [json, setJSON] = useState(kept?.json ?? null); // text that is not (yet) a document
  const [refused, setRefused] = useState([]); // what the control plane said, by field
  const [reviewing, setReviewing] = useState(false);
  const [added, setAdded] = useState([]); // consumer groups without a limit yet
  const [most, setMost] = useState(page);
  const form = useRef();

  const list = changes(content(base), doc);
  const dirty = list.length > 0 || json !== null;

  // What the form says to be wrong; the control plane says the rest.
  const wrong = list.map(c => [c.path, fieldOf(c.path)?.kind ? hint(fieldOf(c.path), c.to) : '']).filter(([, message]) => message);

  // A new policy may leave every field unset; a change has to change something.
  const ready = json === null && wrong.length === 0 && (list.length > 0 || base === null);

  useEffect(() => keepDraft(name, dirty ? {base, doc, json} : null), [dirty, base, doc, json]);

  function reset(to) {
    setBase(to);
    setDoc(content(to));
    setTyped({});
    setJSON(null);
    setRefused([]);
    setAdded([]);
    setRestored(false);
  }

  // A change by someone else is shown at once if the user is not editing; else
  // saving detects the conflict. Only a newer version counts: after saving, base
  // is ahead of the last answer.
  useEffect(() => {
    if (!dirty && policy?.version !== base?.version) reset(policy);
  }, [policy?.version]);

  function edit(field, text) {
    setTyped(t => ({...t, [field.path]: text}));
    setDoc(d => set(d, field.path, parse(field, text)));
    setRefused(r => r.filter(f => f.field !== field.path));
    setJSON(null);
  }

  function revert(field) {
    edit(field, asText(get(content(base), field.path)));
  }

  // A refused field gets the focus, once it is marked.
  useEffect(() => {
    if (refused.length > 0) form.current.querySelector('[aria-invalid=true]')?.focus();
  }, [refused]);

  // The group comes first, and its first field gets the focus.
  const add = group => setAdded(list => [group, ...list.filter(g => g !== group)]);
  useEffect(() => {
    if (added.length > 0) form.current.querySelector(`[name="${CSS.escape(groupFields(added[0])[0].path)}"]`).focus();
  }, [added]);

  const message = field => refused.find(f => f.field === field.path)?.message || hint(field, get(doc, field.path));
  const no = denied(me, 'editor', name);
  const groups = [...new Set([...added, ...groupNames([content(base), doc, ...matching(name, policies)])])];
  const shownGroups = groups.slice(0, most);
  const inForm = new Set([...sections.flatMap(s => s.fields), ...shownGroups.flatMap(groupFields)].map(f => f.path));
  const inputs = list => html`
    <div class="fields">${list.map(field => html`
      <${Input} key=${field.path} field=${field} text=${typed[field.path] ?? asText(get(doc, field.path))}
        changed=${!same(get(content(base), field.path), get(doc, field.path))} message=${message(field)}
        base=${inherited(field.path, name, policies)} onText=${text => edit(field, text)} onRevert=${() => revert(field)} />`)}
    </div>`;
  return html`
    ${restored && dirty && html`<p class="note warn" role="status">These edits are not saved yet: they are from before this page was opened. Undo takes them away.</p>`}
    <form class="editor" ref=${form} onSubmit=${e => { e.preventDefault(); if (!no && ready) setReviewing(true); }}>
      ${sections.map(section => html`
        <fieldset key=${section.title} disabled=${Boolean(no)}>
          <legend>${section.title}</legend>
          ${inputs(section.fields)}
        </fieldset>`)}
      <fieldset disabled=${Boolean(no)}>
        <legend>Consumer groups</legend>
        ${shownGroups.map(group => html`
          <fieldset key=${group}><legend class="code">${group}</legend>${inputs(groupFields(group))}</fieldset>`)}
        ${groups.length > most && html`<button type="button" onClick=${() => setMost(most + page)}>Show ${Math.min(page, groups.length - most)} more</button>`}
        <${AddGroup} onAdd=${add} />
      </fieldset>
      <${JSONEditor} doc=${doc} text=${json} refused=${refused.filter(f => !inForm.has(f.field))} disabled=${Boolean(no)}
        onDoc=${d => { setDoc(d); setTyped({}); setJSON(null); setRefused([]); }} onText=${setJSON} />
      <div class="buttons">
        <${Guarded} type="submit" class="primary" denied=${no} disabled=${!ready}>
          Review ${list.length > 0 ? plural(list.length, 'change') : 'changes'}…
        <//>
        <button type="button" disabled=${!dirty} onClick=${() => reset(policy)}>Undo</button>
        ${no && html`<span class="muted">${no}</span>`}
        ${wrong.length > 0 && html`<span class="error" role="status">Not yet: ${wrong.map(([path, message]) => `${path} ${message}`).join('; ')}.</span>`}
        ${dirty && base && policy?.version > base.version && html`<span class="note warn">Someone else has changed this policy meanwhile.</span>`}
      </div>
      ${reviewing && html`
        <${ChangeDialog} title=${base ? `Change ${name}` : `Create ${name}`} name=${name} base=${base} doc=${doc} policies=${policies}
          onClose=${() => setReviewing(false)}
          onInvalid=${error => { setReviewing(false); setRefused(error.fields.length ? error.fields : [{field: '', message: error.message}]); }}
          onSaved=${saved => { setReviewing(false); reset(saved); onSaved(saved); }} />`}
    </form>`;
}

const asText = value => (value === undefined ? '' : shown(value));

// Input is one field. Escape reverts its text.
function Input({field, text, base, message, changed, onText, onRevert}) {
  const id = useId();
  const from = base.from ? `from ${base.from}` : 'default';
  const common = {
    id, value: text, 'aria-invalid': message ? 'true' : 'false', 'aria-describedby': `${id}-help ${id}-error`,
    name: field.path, onInput: e => onText(e.target.value),
    onKeyDown: e => { if (e.key === 'Escape' && changed) { e.preventDefault(); onRevert(); } },
  };
  const options = field.kind === 'yesno' ? ['true', 'false'] : field.options;
  const word = value => (field.kind === 'yesno' ? (String(value) === 'true' ? 'yes' : 'no') : value);
  return html`
    <div class="field ${changed ? 'changed' : ''}">
      <label for=${id}>${field.label}${field.unit && html` <small>${field.unit}</small>`}</label>
      ${options
        ? html`<select ...${common}>
            <option value="">${word(base.value)} (${from})</option>
            ${options.map(o => html`<option value=${o} key=${o}>${word(o)}</option>`)}
          </select>`
        : html`<input type="text" ...${common} inputmode=${field.kind === 'number' || field.kind === 'whole' ? 'decimal' : 'text'} autocomplete="off" spellcheck=${false}
            placeholder=${`${shown(base.value ?? 'none')} (${from})`} />`}
      <small id="${id}-help">${field.help}</small>
      <small id="${id}-error" class="error" aria-live="polite">${message}</small>
    </div>`;
}

// AddGroup asks for the name of a consumer group.
function AddGroup({onAdd}) {
  const id = useId();
  const [name, setName] = useState('');
  const add = () => {
    if (name) onAdd(name);
    setName('');
  };
  return html`
    <div class="new">
      <label class="hidden" for=${id}>Name of a consumer group</label>
      <input id=${id} type="text" value=${name} placeholder="name of a group" autocomplete="off" spellcheck=${false} onInput=${e => setName(e.target.value.trim())}
        onKeyDown=${e => { if (e.key === 'Enter') { e.preventDefault(); add(); } }} />
      <button type="button" disabled=${!name} onClick=${add}>Add group</button>
    </div>`;
}

// JSONEditor edits the whole policy as text, for the fields that the form lacks.
function JSONEditor({doc, text, refused, disabled, onDoc, onText}) {
  const id = useId();
  const [problem, setProblem] = useState('');
  const [open, setOpen] = useState(false);
  // The text as its author formatted it, as long as it means the same as doc.
  const [own, setOwn] = useState({});
  const value = text ?? (own.doc && same(own.doc, doc) ? own.text : JSON.stringify(doc, null, 2));
  function type(next) {
    try {
      const parsed = parseJSON(next);
      if (parsed === null || typeof parsed !== 'object' || Array.isArray(parsed)) throw new Error('must be an object such as {"partitions": 8}');
      setProblem('');
      setOwn({text: next, doc: content(parsed)});
      onDoc(content(parsed));
    } catch (err) {
      setProblem('Not a policy: ' + err.message);
      onText(next);
    }
  }
  const wrong = (text !== null && problem) || refused.map(f => (f.field ? `${f.field}: ` : '') + f.message).join('\n');
  const others = fields.filter(f => !f.form && !f.members && get(doc, f.path) !== undefined).map(f => f.path);
  return html`
    <details class="json" open=${open || Boolean(wrong)} onToggle=${e => setOpen(e.target.open)}>
      <summary>Whole policy as JSON ${others.length > 0 && html`<small>also sets ${others.join(', ')}</small>`}</summary>
      <label for=${id}>Partitions, deduplication, retention, durability, schema and the rest. Unset fields are inherited.</label>
      <textarea id=${id} rows=${Math.min(24, Math.max(6, value.split('\n').length + 1))} spellcheck=${false} disabled=${disabled} value=${value}
        aria-invalid=${wrong ? 'true' : 'false'} aria-describedby="${id}-error"
        onInput=${e => type(e.target.value)}></textarea>
      <small id="${id}-error" class="error" aria-live="polite">${wrong}</small>
    </details>`;
}
