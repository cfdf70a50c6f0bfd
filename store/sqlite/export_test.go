package sqlite

import "testing"

// Pragma returns a pragma of the store's write connection.
func Pragma(t *testing.T, s *Store, name string) string {
	t.Helper()
	var v string
	if err := s.writer.QueryRowContext(t.Context(), "pragma "+name).Scan(&v); err != nil {
		t.Fatal(err)
	}
	return v
}
