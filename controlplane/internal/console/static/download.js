// Files that are made of what a page shows.

// csv makes a text of rows. A cell that a spreadsheet would take for a formula begins with an apostrophe.
export const csv = rows => rows.map(row => row.map(cell => {
  const text = String(cell ?? '');
  const plain = typeof cell === 'string' && /^[=+\-@\t\r]/.test(text) ? "'" + text : text;
  return /[",\r\n]/.test(plain) ? `"${plain.replaceAll('"', '""')}"` : plain;
}).join(',')).join('\r\n') + '\r\n';

// download gives the user a file.
export function download(name, parts, type) {
  const url = URL.createObjectURL(new Blob(parts, {type}));
  Object.assign(document.createElement('a'), {href: url, download: name}).click();
  URL.revokeObjectURL(url);
}
