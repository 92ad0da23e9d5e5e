// "Copy as": the commands that show what a page shows.
import {Dialog, html, useRef, useState} from './ui.js';

// quote makes one argument of a shell of a text.
export const quote = text => (/^[A-Za-z0-9_./:@%+=,-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);

// CopyAs shows the curl of a path, with the token where there are any, and the command of sluice.
export function CopyAs({path, cli, me}) {
  const [open, setOpen] = useState(false);
  const token = me?.auth ? ' -H "Authorization: Bearer $SLUICE_TOKEN"' : '';
  return html`
    <button type="button" onClick=${() => setOpen(true)}>Copy as…</button>
    ${open && html`
      <${Dialog} title="Copy as" onClose=${() => setOpen(false)}>
        <${Command} label="curl" text=${`curl -s${token} ${quote(location.origin + path)}`} />
        ${cli && html`<${Command} label="sluice" text=${`${cli} --control-plane-url ${quote(location.origin)}`} />`}
        <div class="buttons"><button type="button" onClick=${() => setOpen(false)}>Close</button></div>
      <//>`}`;
}

function Command({label, text}) {
  const code = useRef();
  const [copied, setCopied] = useState(false);
  const copy = async () => {
    getSelection().selectAllChildren(code.current);
    // Pages that came over plain HTTP from elsewhere have no clipboard: the text is selected for the user then.
    await navigator.clipboard?.writeText(text);
    setCopied(Boolean(navigator.clipboard));
  };
  return html`
    <h3>${label}</h3>
    <div class="command"><pre ref=${code}>${text}</pre>
      <button type="button" onClick=${copy} aria-label=${`Copy the ${label} command`}>${copied ? 'Copied' : 'Copy'}</button></div>`;
}
