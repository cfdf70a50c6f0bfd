package sqlite_test

import (
	"strings"
	"testing"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/store/sqlite"
)

// The indexes serve the queries that would otherwise read all rows of a tenant or of a table.
func TestQueriesUseIndexes(t *testing.T) {
	s := openStore(t, t.TempDir()+"/brig.db")
	ended, endedArgs := sqlite.ListQuery(t, "t", brig.ListOptions{States: []brig.State{brig.Ended}})
	running, runningArgs := sqlite.ListQuery(t, "t", brig.ListOptions{States: []brig.State{brig.Running, brig.Paused}})
	builds, buildsArgs := sqlite.BuildsQuery(brig.BuildFilter{Tenant: "t", Template: "x"})
	unfinished, unfinishedArgs := sqlite.BuildsQuery(brig.BuildFilter{Unfinished: true})
	one, oneArgs := sqlite.BuildsQuery(brig.BuildFilter{Tenant: "t", Template: "x", ID: "y"})
	discarded, discardedArgs := sqlite.BuildsQuery(brig.BuildFilter{Discarded: true})
	for _, c := range []struct {
		name, query string
		args        []any
		index       string
	}{
		{"ended sandboxes", ended, endedArgs, "sandboxes_ended"},
		{"other sandboxes", running, runningArgs, "sandboxes_newest"},
		{"delete old runs", sqlite.DeleteRunsQuery, []any{1}, "runs_oldest (tenant=? AND put_ns<?)"},
		{"builds of a template", builds, buildsArgs, "template_builds_newest (tenant=? AND template=?)"},
		{"unfinished builds", unfinished, unfinishedArgs, "template_builds_unfinished"},
		{"one build", one, oneArgs, "sqlite_autoindex_template_builds_1 (tenant=? AND template=? AND id=?)"},
		{"discarded builds", discarded, discardedArgs, "template_builds_discarded"},
	} {
		plan := sqlite.Plan(t, s, c.query, c.args...)
		if !strings.Contains(plan, c.index) || strings.Contains(plan, "TEMP B-TREE") || strings.Contains(plan, "SCAN sandboxes") {
			t.Errorf("%s: plan %q, expected index %s", c.name, plan, c.index)
		}
	}
}
