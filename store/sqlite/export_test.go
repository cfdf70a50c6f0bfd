package sqlite

import (
	"strings"
	"testing"

	"github.com/brig-run/brig"
)

// Pragma returns a pragma of the store's write connection.
func Pragma(t *testing.T, s *Store, name string) string {
	t.Helper()
	var v string
	if err := s.writer.QueryRowContext(t.Context(), "pragma "+name).Scan(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

// Plan returns SQLite's plan of a query with the given arguments.
func Plan(t *testing.T, s *Store, query string, args ...any) string {
	t.Helper()
	rows, err := s.readers.QueryContext(t.Context(), "explain query plan "+query, args...)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var plan []string
	for rows.Next() {
		var id, parent, unused int
		var detail string
		if err := rows.Scan(&id, &parent, &unused, &detail); err != nil {
			t.Fatal(err)
		}
		plan = append(plan, detail)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return strings.Join(plan, "; ")
}

// DeleteRunsQuery is the statement that deletes the runs of all tenants that are older than a time.
const DeleteRunsQuery = deleteRuns

// ListQuery returns the query of List.
func ListQuery(t *testing.T, tenant string, o brig.ListOptions) (string, []any) {
	t.Helper()
	q, args, err := selection(tenant, o, 10)
	if err != nil {
		t.Fatal(err)
	}
	return q, args
}

// BuildsQuery returns the query of Builds.
func BuildsQuery(f brig.BuildFilter) (string, []any) { return buildsQuery(f) }
