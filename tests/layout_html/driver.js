// Appended to a page of `tessera layout`: uses it as a person would, by mouse and by keyboard, and leaves the verdict in
// the document, where --dump-dom shows it.
(() => {
  const faults = [];
  const expect = (is, what) => { if (!is) faults.push(what); };
  const linked = () => [...document.querySelectorAll('.linked')];
  const info = () => document.getElementById('info').textContent;
  const key = name => document.activeElement.dispatchEvent(new KeyboardEvent('keydown', {key: name, bubbles: true, cancelable: true}));

  // What pointing at one cell of each page must show.
  const pages = {
    'mma.m16n8k64.mxf4nvf4, operand A': ['5,17', ['lane 22', 'register 0', 'first_bit 4']],
    'swizzle 128B, rows of 128 bytes, 128 apart': ['1,3', ['address 160', 'bank 8']],
    'shared-memory descriptor of wgmma, K-major': ['1,1', ['address 128', 'bank 0']]};
  const [link, shown] = pages[document.title] || ['', []];
  expect(link !== '', 'a page that the test knows: ' + document.title);
  document.querySelector('td[data-link="' + link + '"]').dispatchEvent(new MouseEvent('mouseover', {bubbles: true}));
  expect(linked().length === 2, 'two cells are linked, found ' + linked().length);
  expect(linked().every(e => e.dataset.link === link), 'the linked ones are those of the element');
  for (const part of shown) expect(info().includes(part), part + ' of ' + link + ': ' + info());

  const stops = document.querySelectorAll('td[tabindex="0"]');
  expect(stops.length === document.querySelectorAll('table').length, 'one tab stop a grid, found ' + stops.length);
  stops[0].focus();
  key('ArrowRight');
  key('ArrowDown');
  const at = document.activeElement.dataset.link;
  expect(at === '1,1', 'right and down lead to 1,1, found ' + at);
  const table = document.activeElement.closest('table');
  key('Enter');
  expect(document.activeElement.dataset.link === at && document.activeElement.closest('table') !== table, 'Enter leads to the twin');
  key('Enter');
  expect(document.activeElement.closest('table') === table, 'and back');
  stops[0].focus();
  key('ArrowLeft');
  key('ArrowUp');
  expect(document.activeElement === stops[0], 'the edge holds');

  // Light text on dark ground or the other way round, as was asked for.
  const brightness = colour => colour.match(/\d+/g).slice(0, 3).reduce((sum, c) => sum + Number(c), 0);
  const style = getComputedStyle(document.body), is_dark = matchMedia('(prefers-color-scheme: dark)').matches;
  const contrast = brightness(style.color) - brightness(style.backgroundColor);
  expect(is_dark ? contrast > 300 : contrast < -300, style.color + ' on ' + style.backgroundColor);
  document.body.dataset.mode = is_dark ? 'dark' : 'light';
  document.body.dataset.verdict = faults.length === 0 ? 'passed' : 'failed: ' + faults.join('; ');
})();
