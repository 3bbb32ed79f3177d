#!/usr/bin/env bash
# Runs an experiment in CI, compares its record with the last one, and writes a summary for people.
#
#   STOCKADE_EXPERIMENT=tests/herd.toml run-experiment.sh
#
# Settings, all from the environment:
#   STOCKADE_EXPERIMENT   the file of the experiment; required
#   STOCKADE_ARGS         more arguments of `stockade run`, quoted as in a shell; nothing in them is expanded
#   STOCKADE_COMPARE      true: compare with the last record, if there is one [true]
#   STOCKADE_MIN_EFFECT   the least change that counts [5%]
#   STOCKADE_FAIL_ON      what fails in addition to a refuted hypothesis: `inconclusive`, `regression`, both with a comma, or
#                         `refuted` for neither [inconclusive]
#   STOCKADE_RECORD       the directory of the record that is made [stockade-record]
#   STOCKADE_LAST_RECORD  the directory of the last record, which may be missing [stockade-last-record]. The caller keeps
#                         it: after a run of the default branch, copy STOCKADE_RECORD there
#   STOCKADE_SUMMARY      the summary in Markdown [stockade-summary.md]
#   STOCKADE_JUNIT        the verdicts for the test view of a forge [stockade-junit.xml]
#   STOCKADE              the program [stockade]
#   GITHUB_STEP_SUMMARY   as GitHub sets it, the summary is appended to this file; without it, standard output has the summary
#
# Exit code: that of `stockade run`; 98 counts as 0 unless STOCKADE_FAIL_ON has `inconclusive`. If it is 0 and
# STOCKADE_FAIL_ON has `regression`, 99 if a figure became worse. A comparison that cannot be made fails nothing, because a
# change of the experiment itself has nothing to compare with: the summary has the reason.
set -euo pipefail

stockade=${STOCKADE:-stockade}
experiment=${STOCKADE_EXPERIMENT:-}
record=${STOCKADE_RECORD:-stockade-record}
last=${STOCKADE_LAST_RECORD:-stockade-last-record}
summary=${STOCKADE_SUMMARY:-stockade-summary.md}
junit=${STOCKADE_JUNIT:-stockade-junit.xml}
fails_on=${STOCKADE_FAIL_ON-inconclusive}

refuse() {
    printf 'error: %s\n' "$1" >&2
    exit 2
}

[[ -n $experiment ]] || refuse 'STOCKADE_EXPERIMENT is empty: set it to the file of the experiment'
# A name, and no flag.
[[ $experiment != -* ]] || experiment=./$experiment
IFS=', ' read -r -a conditions <<<"$fails_on"
for condition in "${conditions[@]}"; do
    case $condition in
    inconclusive | regression | refuted) ;;
    *) refuse "STOCKADE_FAIL_ON has \`$condition\`: write inconclusive, regression or refuted" ;;
    esac
done

has_condition() {
    [[ " ${conditions[*]-} " == *" $1 "* ]]
}

work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT

# Quotes as in a shell, but without expansion.
if ! xargs -r printf '%s\0' <<<"${STOCKADE_ARGS:-}" >"$work/arguments" 2>/dev/null; then
    refuse 'STOCKADE_ARGS has a quote without an end'
fi
mapfile -d '' -t arguments <"$work/arguments"

# The message of a command, as code that it cannot end.
quote() {
    printf '\n```text\n'
    head -c 4000 -- "$1" | tr -d '\000-\010\013-\037\177`'
    printf '\n```\n'
}

if [[ -e $record && ! -e $record/record.json ]]; then
    refuse "STOCKADE_RECORD is \`$record\`, which is not a record: name a directory that does not exist"
fi
rm -rf -- "$record"
rm -f -- "$summary" "$junit"
set +e
"$stockade" run "$experiment" --out "$record" --format summary "${arguments[@]}" >"$work/run.md" 2>"$work/run.err"
run_code=$?
set -e
cat -- "$work/run.err" >&2

{
    cat -- "$work/run.md"
    if [[ ! -s $work/run.md ]]; then
        printf '**Failed**: the experiment did not run (exit code %d)\n' "$run_code"
        quote "$work/run.err"
    fi
} >"$summary"
if [[ -e $record/record.json ]]; then
    "$stockade" report "$record" --format junit >"$junit" || rm -f -- "$junit"
fi

compare_code=0
if [[ ${STOCKADE_COMPARE:-true} == true && -e $record/record.json ]]; then
    if [[ -e $last/record.json ]]; then
        set +e
        "$stockade" compare "$last" "$record" --format md --fail-on regression --min-effect "${STOCKADE_MIN_EFFECT:-5%}" \
            >"$work/compare.md" 2>"$work/compare.err"
        compare_code=$?
        set -e
        cat -- "$work/compare.err" >&2
        {
            printf '\nSince the last record, '
            case $compare_code in
            0 | 99) cat -- "$work/compare.md" ;;
            *)
                printf 'nothing can be compared:\n'
                quote "$work/compare.err"
                compare_code=0
                ;;
            esac
        } >>"$summary"
    else
        printf '\nThere is no earlier record to compare with.\n' >>"$summary"
    fi
fi

code=$run_code
if [[ $code == 98 ]] && ! has_condition inconclusive; then
    code=0
fi
if [[ $code == 0 ]] && has_condition regression; then
    code=$compare_code
    if [[ $code != 0 ]]; then
        # The summary begins with the verdict of the run, which passed.
        {
            printf '**Worse than the last record**: the comparison is below.\n\n'
            cat -- "$summary"
        } >"$work/summary.md"
        cp -- "$work/summary.md" "$summary"
    fi
fi

if [[ -n ${GITHUB_STEP_SUMMARY:-} ]]; then
    cat -- "$summary" >>"$GITHUB_STEP_SUMMARY"
else
    cat -- "$summary"
fi
exit "$code"
