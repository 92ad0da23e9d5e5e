// The dialog that publishes a test event, marked as one by a header.
import {html, useId, useState} from './ui.js';
import {api, parseJSON} from './api.js';
import {Confirm} from './change.js';

// testHeader marks test events: consumers may look for it.
const testHeader = 'test-event';

export function Publish({topic, store, me, onClose}) {
  const id = useId();
  const [payload, setPayload] = useState('{"test": true}');
  const [key, setKey] = useState('');
  const [receipt, setReceipt] = useState(null);
  let value, invalid = '';
  try {
    value = parseJSON(payload);
  } catch {
    invalid = 'This is not JSON.';
  }
  async function publish() {
    setReceipt(await api.publish(store, topic, {payload: value, opts: {...(key && {key}), headers: {[testHeader]: me.name}}}));
  }
  if (receipt) {
    return html`
      <${Confirm} key="receipt" title="Published" verb="Close" act=${onClose} onClose=${onClose}>
        <p>${receipt.durability === 'spool' ? 'It waits in the sidecar’s spool until its store is back.' : html`It is in partition ${receipt.partition}, seq ${receipt.seq}.`}</p>
        <p>Its id is <code>${receipt.id}</code>.</p>
      <//>`;
  }
  return html`
    <${Confirm} title="Publish a test event to ${topic}" verb="Publish" ready=${!invalid} act=${publish} onClose=${onClose}>
      <p>Every group of the topic gets it. Its header <code>${testHeader}</code> says that it is a test, and by whom.</p>
      <p><label for="${id}-key">Key</label>
        <input id="${id}-key" type="text" class="wide" value=${key} placeholder="none" autocomplete="off" spellcheck=${false} onInput=${e => setKey(e.target.value)} /></p>
      <p><label for="${id}-payload">Payload, as JSON</label>
        <textarea id="${id}-payload" class="wide code" rows="8" spellcheck=${false} value=${payload} aria-invalid=${invalid ? 'true' : 'false'}
          aria-describedby="${id}-error" onInput=${e => setPayload(e.target.value)}></textarea>
        <small id="${id}-error" class="error" aria-live="polite">${invalid}</small></p>
    <//>`;
}
