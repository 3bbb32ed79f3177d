// Prints results of http-tests/cache-tests as Markdown: `node cache-tests.mjs SUITE RESULTS.json`.
import fs from 'node:fs'
import path from 'node:path'
import { pathToFileURL } from 'node:url'

const [suite, file] = process.argv.slice(2)
const load = (name) => import(pathToFileURL(path.resolve(suite, name)))
const { default: suites } = await load('tests/index.mjs')
const { determineTestResult, resultTypes } = await load('test-engine/lib/results.mjs')
const results = JSON.parse(fs.readFileSync(file))

const kinds = { required: 'required', optimal: 'optional', check: 'behaviour' }
const tally = {}
const missed = []
for (const test of suites.flatMap((suite) => suite.tests)) {
  if (test.browser_only) continue
  const kind = kinds[test.kind ?? 'required']
  const passed = [resultTypes.pass, resultTypes.yes].includes(determineTestResult(suites, test.id, results))
  tally[kind] ??= { passed: 0, of: 0 }
  tally[kind].of += 1
  tally[kind].passed += passed
  if (!passed && kind !== 'behaviour') missed.push([kind, test.id, test.name])
}
for (const [kind, { passed, of }] of Object.entries(tally)) console.log(`${kind}: ${passed} of ${of}`)
for (const [kind, id, name] of missed) console.log(`- ${kind}: \`${id}\`: ${name}`)
