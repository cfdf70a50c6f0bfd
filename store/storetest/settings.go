package storetest

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig"
)

func setting(name, value string, after time.Duration) brig.Setting {
	return brig.Setting{Name: name, Type: "json", Value: []byte(value), Updated: birth.Add(after)}
}

func testSettings(t *testing.T, s brig.Store) {
	ctx := t.Context()
	list, err := s.Settings(ctx)
	mustSucceed(t, err)
	if len(list) != 0 {
		t.Fatalf("a new store has settings: %v", list)
	}
	long := strings.Repeat("k", 100_000)
	in := []brig.Setting{setting("sandbox.e2b2", long, 0), setting("sandbox.e2b", "{}", 0)}
	mustSucceed(t, s.PutSettings(ctx, in, event("put")))
	mutate(reflect.ValueOf(in))
	for range 2 {
		list, err = s.Settings(ctx)
		mustSucceed(t, err)
		checkEqual(t, "settings", list, []brig.Setting{setting("sandbox.e2b", "{}", 0), setting("sandbox.e2b2", long, 0)})
		mutate(reflect.ValueOf(list))
	}
	mustSucceed(t, s.PutSettings(ctx, []brig.Setting{{Name: "sandbox.e2b"}, {Name: "never"}, setting("a", "1", 1)}, event("change")))
	list, err = s.Settings(ctx)
	mustSucceed(t, err)
	checkEqual(t, "changed settings", list, []brig.Setting{setting("a", "1", 1), setting("sandbox.e2b2", long, 0)})
	mustSucceed(t, s.PutSettings(ctx, []brig.Setting{setting("a", "", 2)}))
	list, err = s.Settings(ctx)
	mustSucceed(t, err)
	if len(list) != 2 || string(list[0].Value) != "" || !list[0].Updated.Equal(birth.Add(2)) {
		t.Errorf("an empty setting is not kept: %v", list)
	}
	checkEqual(t, "events", ops(t, s, 99), []string{"change", "put"})
}
