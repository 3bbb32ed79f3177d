#!/usr/bin/env bash
# Posts the summary as a comment on a pull request of GitHub, or updates the one of an earlier run. Never fails: a pull
# request from a fork has no token that may comment.
#
#   COMMENT_KEY   tells the comments of several experiments apart
#   COMMENT_FILE  the summary
#   PULL_REQUEST  the number of the pull request
#   GH_TOKEN, GITHUB_REPOSITORY  as in a workflow; BOT: the user of the token [github-actions[bot]]
set -euo pipefail

warn() {
    printf '::warning::%s\n' "$1"
    exit 0
}

[[ ${PULL_REQUEST:-} =~ ^[0-9]+$ ]] || exit 0
[[ -n ${GH_TOKEN:-} ]] || warn 'no token: the summary is not posted as a comment'
[[ -s ${COMMENT_FILE:?} ]] || exit 0

work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT

marker="<!-- stockade: $(tr -c 'A-Za-z0-9._/-' '_' <<<"${COMMENT_KEY:-experiment}" | head -c 100) -->"
# A comment has at most 65,536 characters, and the summary less than that.
{
    printf '%s\n' "$marker"
    cat -- "$COMMENT_FILE"
} >"$work/body"

comments="repos/$GITHUB_REPOSITORY/issues/$PULL_REQUEST/comments"
export MARKER=$marker BOT=${BOT:-github-actions[bot]}
# shellcheck disable=SC2016 # a filter of jq, which reads the environment itself
filter='.[] | select(.user.login == env.BOT and (.body | startswith(env.MARKER))) | .id'
if ! gh api --paginate "$comments?per_page=100" --jq "$filter" >"$work/ids" 2>"$work/error"; then
    warn "the comments of the pull request cannot be read: $(head -n 1 -- "$work/error")"
fi
id=$(head -n 1 -- "$work/ids")
if [[ $id =~ ^[0-9]+$ ]]; then
    request=(--method PATCH "repos/$GITHUB_REPOSITORY/issues/comments/$id")
else
    request=(--method POST "$comments")
fi
if ! gh api "${request[@]}" --field "body=@$work/body" >/dev/null 2>"$work/error"; then
    warn "the summary cannot be posted as a comment: $(head -n 1 -- "$work/error"); it needs the permission pull-requests: write"
fi
