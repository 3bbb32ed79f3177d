// Writes the results of http-tests/cache-tests into the documents: `node cache-tests.mjs SUITE ROOT COMMIT DATE`.
//
// `docs/results/cache-tests/summary.json` has the figures; the pages repeat them, and a test of the proxy compares. The reasons for tests
// that do not pass are written by hand: a test without one is added to the table, and this program fails.
import fs from 'node:fs'
import path from 'node:path'
import { pathToFileURL } from 'node:url'

const [suite, root, commit, date] = process.argv.slice(2)
const load = (name) => import(pathToFileURL(path.resolve(suite, name)))
const { default: suites } = await load('tests/index.mjs')
const { determineTestResult, resultTypes } = await load('test-engine/lib/results.mjs')
const folder = path.join(root, 'docs/results/cache-tests')
const results = JSON.parse(fs.readFileSync(path.join(folder, 'stockade.json')))

const kinds = { required: 'required', optimal: 'optional' }
const summary = {
  suite: commit,
  date,
  required: { passed: 0, of: 0, not_passed: [] },
  optional: { passed: 0, of: 0, not_passed: [] }
}
for (const test of suites.flatMap((suite) => suite.tests)) {
  const kind = kinds[test.kind ?? 'required']
  if (test.browser_only || !kind) continue
  const passed = [resultTypes.pass, resultTypes.yes].includes(determineTestResult(suites, test.id, results))
  summary[kind].of += 1
  summary[kind].passed += passed
  if (!passed) summary[kind].not_passed.push(test.id)
}
const { required, optional } = summary
for (const kind of [required, optional]) kind.not_passed.sort()
fs.writeFileSync(path.join(folder, 'summary.json'), JSON.stringify(summary, null, 2) + '\n')

const wanting = []
function rewrite (name, replacements) {
  const file = path.join(root, name)
  let text = fs.readFileSync(file, 'utf8')
  for (const [pattern, replacement] of replacements) {
    if (!pattern.test(text)) wanting.push(`${name}: nothing matches ${pattern}`)
    text = text.replace(pattern, replacement)
  }
  fs.writeFileSync(file, text)
}
const requiredText = `${required.passed} of ${required.of} required tests`
rewrite('README.md', [[/\d+ of \d+ required tests/, requiredText]])
rewrite('docs/results/README.md', [[/\d+ of \d+ required tests/, requiredText]])
rewrite('docs/reference/proxy.md', [
  [/\d+ of \d+ required tests and \d+ of \d+ optional ones/, `${requiredText} and ${optional.passed} of ${optional.of} optional ones`]
])
rewrite('docs/results/cache-tests/README.md', [
  [/at commit `[0-9a-f]+` of [0-9-]+/, `at commit \`${commit.slice(0, 12)}\` of ${date}`],
  [/required \(\d+\) \| optional \(\d+\)/, `required (${required.of}) | optional (${optional.of})`],
  [/\| \*\*Stockade\*\* \| \*\*\d+\*\* \| \*\*\d+\*\* \|/, `| **Stockade** | **${required.passed}** | **${optional.passed}** |`]
])

// The table of tests that do not pass: rows of tests that pass now go, and new ones come without a reason.
const page = path.join(folder, 'README.md')
const lines = fs.readFileSync(page, 'utf8').trimEnd().split('\n')
const ids = (line) => [...line.matchAll(/`([a-z0-9-]+)`/gi)].map((match) => match[1])
const first = lines.indexOf('|---|---|---|', lines.indexOf('## Not passed')) + 1
const rows = lines.slice(first).filter((line) => line.startsWith('|'))
const named = new Set()
const kept = rows.flatMap((row) => {
  const cells = row.split('|').slice(1, -1)
  const still = ids(cells[0]).filter((id) => summary[cells[1].trim()].not_passed.includes(id))
  still.forEach((id) => named.add(id))
  return still.length ? [`| ${still.map((id) => `\`${id}\``).join(', ')} |${cells.slice(1).join('|')}|`] : []
})
for (const [kind, { not_passed: missed }] of [['required', required], ['optional', optional]]) {
  for (const id of missed.filter((id) => !named.has(id))) {
    kept.push(`| \`${id}\` | ${kind} | |`)
    wanting.push(`docs/results/cache-tests/README.md: no reason for ${id}`)
  }
}
fs.writeFileSync(page, [...lines.slice(0, first), ...kept].join('\n') + '\n')

console.log(`required: ${required.passed} of ${required.of}: not ${required.not_passed.join(', ')}`)
console.log(`optional: ${optional.passed} of ${optional.of}: not ${optional.not_passed.join(', ')}`)
if (wanting.length) {
  console.error(wanting.join('\n'))
  process.exit(1)
}
