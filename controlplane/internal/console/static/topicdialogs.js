// The dialogs that make and delete a topic.
import {ErrorNote, html, useEffect, useId, useState} from './ui.js';
import {api, storePath} from './api.js';
import {Confirm} from './change.js';
import {bytes, count, plural} from './format.js';

// InStore selects the store, where there are several.
function InStore({stores, store, onStore}) {
  const id = useId();
  return stores.length > 1 && html`
    <p><label for=${id}>Store</label>
      <select id=${id} class="wide" value=${store} onChange=${e => onStore(e.target.value)}>
        ${stores.map(s => html`<option key=${s.store} value=${s.store}>${s.kind} of ${s.sidecars.join(', ')}</option>`)}
      </select></p>`;
}

export function NewTopic({stores, onMade, onClose}) {
  const id = useId();
  const [name, setName] = useState('');
  const [store, setStore] = useState(stores[0].store);
  const valid = /^[A-Za-z0-9.-][A-Za-z0-9._-]{0,254}$/.test(name);
  return html`
    <${Confirm} title="New topic" verb="Make it" ready=${valid} act=${() => api.put(storePath(store, 'topics', name)).then(() => onMade(name))} onClose=${onClose}>
      <p>Its policy sets the number of partitions, which stays: look at the policy before. Publishing makes topics, too, unless their policy has auto_create false.</p>
      <p><label for=${id}>Name</label>
        <input id=${id} type="text" class="wide code" value=${name} autofocus autocomplete="off" spellcheck=${false} aria-invalid=${name && !valid ? 'true' : 'false'}
          aria-describedby="${id}-error" onInput=${e => setName(e.target.value.trim())} />
        <small id="${id}-error" class="error" aria-live="polite">${name && !valid ? 'A-Z a-z 0-9 . _ - at most 255; a first _ is reserved' : ''}</small></p>
      <${InStore} stores=${stores} store=${store} onStore=${setStore} />
    <//>`;
}

// DeleteTopic says what goes, and wants the name typed.
export function DeleteTopic({topic, stores, onClose, onDeleted}) {
  const [store, setStore] = useState(stores[0].store);
  const [{plan, error}, setState] = useState({});
  const path = storePath(store, 'topics', topic);
  useEffect(() => {
    setState({});
    let gone = false;
    api.delete(path + '?dry_run=1').then(plan => !gone && setState({plan}), error => !gone && setState({error}));
    return () => { gone = true; };
  }, [path]);
  return html`
    <${Confirm} title="Delete ${topic}" verb="Delete" danger typed=${topic} ready=${Boolean(plan)} act=${() => api.delete(path).then(onDeleted)} onClose=${onClose}>
      <${InStore} stores=${stores} store=${store} onStore=${setStore} />
      ${plan && html`
        <p>This goes for good:</p>
        <ul>
          <li><b>${plural(plan.events, 'event')}</b>, ${bytes(plan.bytes)}</li>
          <li>${plural(plan.groups.length, 'group')}${plan.groups.length > 0 && html`: <span class="code">${plan.groups.join(', ')}</span>`}</li>
          <li>${plural(plan.dead_letters, 'dead letter')}, ${count(plan.scheduled)} scheduled</li>
        </ul>
        <p>Its policy stays. A publish makes the topic again, empty, if the policy allows.</p>`}
      <${ErrorNote} error=${error} />
    <//>`;
}
