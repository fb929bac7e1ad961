// Appended to a page of `tessera layout fragment mma.m16n8k64.mxf4nvf4 --operand A`: uses it as a person would, by mouse and
// by keyboard, and leaves the verdict in the document, where --dump-dom shows it.
(() => {
  const faults = [];
  const expect = (is, what) => { if (!is) faults.push(what); };
  const linked = () => [...document.querySelectorAll('.linked')];
  const info = () => document.getElementById('info').textContent;
  const key = name => document.activeElement.dispatchEvent(new KeyboardEvent('keydown', {key: name, bubbles: true, cancelable: true}));

  const cell = document.querySelector('td[data-link="5,17"]');
  cell.dispatchEvent(new MouseEvent('mouseover', {bubbles: true}));
  expect(linked().length === 2, 'two cells are linked, found ' + linked().length);
  expect(linked().every(e => e.dataset.link === '5,17'), 'the linked ones are those of the element');
  expect(info().includes('lane 22') && info().includes('register 0') && info().includes('first_bit 4'), 'values of 5,17: ' + info());

  const stops = document.querySelectorAll('td[tabindex="0"]');
  expect(stops.length === 2, 'one tab stop a grid, found ' + stops.length);
  stops[0].focus();
  key('ArrowRight');
  key('ArrowDown');
  expect(document.activeElement.dataset.link === '1,1', 'right and down lead to 1,1, found ' + document.activeElement.dataset.link);
  const table = document.activeElement.closest('table');
  key('Enter');
  expect(document.activeElement.dataset.link === '1,1' && document.activeElement.closest('table') !== table, 'Enter leads to the twin');
  key('ArrowLeft');
  key('ArrowUp');
  expect(document.activeElement !== null, 'the edge holds');

  const ground = getComputedStyle(document.body).backgroundColor, ink = getComputedStyle(document.body).color;
  expect(ground !== ink, 'text is seen: ' + ground + ' on ' + ink);
  document.body.dataset.ground = ground;
  document.body.dataset.verdict = faults.length === 0 ? 'passed' : 'failed: ' + faults.join('; ');
})();
