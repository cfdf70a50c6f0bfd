// Package storetest is the conformance suite for brig.Store. It verifies every statement of the
// contract, and details that the contract does not specify but that must not differ between
// stores.
//
// The suite accesses stores only through their interface. A store's own test calls Run and adds
// specific tests, such as for files and crashes.
package storetest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/brig-run/brig"
)

// Run checks a store. open returns a new, empty store, and closes it with
// t.Cleanup if necessary. Run calls open several times.
func Run(t *testing.T, newStore func(t *testing.T) brig.Store) {
	for _, test := range []struct {
		name string
		f    func(*testing.T, brig.Store)
	}{
		{"Insert", testInsert},
		{"Update", testUpdate},
		{"Tenants", testTenants},
		{"All", testAll},
		{"Delete", testDelete},
		{"Order", testOrder},
		{"Paging", testPaging},
		{"Limits", testLimits},
		{"LargeRecords", testLargeRecords},
		{"Filters", testFilters},
		{"Cursors", testCursors},
		{"Execs", testExecs},
		{"LargeExecs", testLargeExecs},
		{"ExecOfNone", testExecOfDeletedSandbox},
		{"Runs", testRuns},
		{"ListRuns", testListRuns},
		{"LargeRuns", testLargeRuns},
		{"PruneRuns", testPruneRuns},
		{"TrimExecs", testTrimExecs},
		{"TrimRuns", testTrimRuns},
		{"TrimBytes", testTrimBytes},
		{"EndRun", testEndRun},
		{"EndRunOrNothing", testEndRunIsAtomic},
		{"PutErrors", testPutErrors},
		{"Keys", testKeys},
		{"KeyLists", testKeyLists},
		{"Sessions", testSessions},
		{"SessionEnds", testSessionEnds},
		{"TenantRecords", testTenantRecords},
		{"DeleteTenant", testDeleteTenant},
		{"Usage", testUsage},
		{"UsageOrNothing", testUsageIsAtomic},
		{"Events", testEvents},
		{"EventsInTransaction", testEventsInTransaction},
		{"Chain", testChain},
		{"ChainRace", testChainRace},
		{"PruneAudit", testPruneAudit},
		{"Secrets", testSecrets},
		{"Settings", testSettings},
		{"ToolSetups", testToolSetups},
		{"ToolVariables", testToolVariables},
		{"ToolsOfTenants", testToolsOfTenants},
		{"Templates", testTemplates},
		{"TemplatesWithBuilds", testTemplatesWithBuilds},
		{"TemplateLists", testTemplateLists},
		{"Builds", testBuilds},
		{"BuildLists", testBuildLists},
		{"TemplateRoundTrip", testTemplateRoundTrip},
		{"TemplatesOfTenants", testTemplatesOfTenants},
		{"TemplateConflict", testTemplateConflict},
		{"TemplatesCanceled", testTemplatesCanceled},
		{"Webhooks", testWebhooks},
		{"WebhookRoundTrip", testWebhookRoundTrip},
		{"AuditOps", testAuditOps},
		{"Volumes", testVolumes},
		{"VolumeRoundTrip", testVolumeRoundTrip},
		{"RoundTrip", testRoundTrip},
		{"Bytes", testBytes},
		{"Times", testTimes},
		{"Canceled", testCanceled},
		{"OneWinner", testConflict},
		{"NoLostUpdate", testNoLostUpdate},
		{"OneName", testDuplicateNames},
		{"Mixed", testMixed},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newStore(t)
			t.Cleanup(func() { mustSucceed(t, s.Close()) })
			test.f(t, s)
		})
	}
}

// birth is the creation time of the suite's sandboxes, unless set otherwise.
var birth = time.Date(2026, 11, 21, 9, 0, 0, 123456789, time.UTC)

// record returns a small valid record.
func record(tenant, name string) *brig.Record {
	return &brig.Record{Sandbox: brig.Sandbox{
		ID: brig.ID("id-" + tenant + "-" + name), Tenant: tenant,
		Spec: brig.Spec{Name: name}, State: brig.Running, Created: birth,
	}}
}

// put inserts a record with that tenant and name.
func put(t *testing.T, s brig.Store, tenant, name string) *brig.Record {
	t.Helper()
	r := record(tenant, name)
	mustSucceed(t, s.Put(t.Context(), r))
	return r
}

func mustSucceed(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// kind verifies that err is an error of kind k that a caller may see, and returns it.
func kind(t *testing.T, err error, k brig.Kind) *brig.Error {
	t.Helper()
	e, is := errors.AsType[*brig.Error](err)
	if !is || e.Kind != k {
		t.Fatalf("got error %v (%T), want a *brig.Error of kind %s", err, err, k)
	}
	if e.Message == "" || e.Hint == "" {
		t.Errorf("error %+v lacks a message or a hint", e)
	}
	return e
}

// checkEqual checks that got equals want exactly.
func checkEqual(t *testing.T, what string, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("%s: %s", what, differ("", reflect.ValueOf(got), reflect.ValueOf(want)))
	}
}

// differ describes the first difference between two values, because whole records are too long
// to compare by eye.
func differ(path string, got, want reflect.Value) string {
	if got.IsValid() && want.IsValid() && got.Type() == want.Type() {
		parts := func(n int, part func(v reflect.Value, i int) reflect.Value, name func(i int) string) string {
			for i := range n {
				if g, w := part(got, i), part(want, i); !reflect.DeepEqual(g.Interface(), w.Interface()) {
					return differ(path+name(i), g, w)
				}
			}
			return ""
		}
		switch k := got.Kind(); {
		case k == reflect.Pointer && !got.IsNil() && !want.IsNil():
			return differ(path, got.Elem(), want.Elem())
		case k == reflect.Struct && got.Type() != reflect.TypeFor[time.Time]():
			return parts(got.NumField(), reflect.Value.Field, func(i int) string { return "." + got.Type().Field(i).Name })
		case k == reflect.Slice && got.Len() == want.Len() && got.Len() > 0 && got.Type().Elem().Kind() != reflect.Uint8:
			return parts(got.Len(), reflect.Value.Index, func(i int) string { return fmt.Sprintf("[%d]", i) })
		}
	}
	return fmt.Sprintf("at %q:\n got %#v\nwant %#v", path, got, want)
}

// names lists the names of records, for messages and comparisons.
func names(rs []*brig.Record) []string {
	var out []string
	for _, r := range rs {
		out = append(out, r.Spec.Name)
	}
	return out
}

// listAll reads all pages of a list.
func listAll(t *testing.T, s brig.Store, tenant string, o brig.ListOptions) []*brig.Record {
	t.Helper()
	var all []*brig.Record
	for {
		page, next, err := s.List(t.Context(), tenant, o)
		mustSucceed(t, err)
		all = append(all, page...)
		if next == "" {
			return all
		}
		if len(page) == 0 || next == o.Cursor {
			t.Fatalf("after the cursor %q: %d records and the next cursor %q", o.Cursor, len(page), next)
		}
		o.Cursor = next
	}
}

// event returns an event with a distinct op.
func event(op string) brig.Event {
	return brig.Event{At: birth, Op: op, Actor: "ann", Tenant: "t", Sandbox: "id", Phase: brig.Intent}
}

// ops lists the operations of the newest n events, newest first.
func ops(t *testing.T, s brig.Store, n int) []string {
	t.Helper()
	events, err := s.Events(t.Context(), n)
	mustSucceed(t, err)
	var out []string
	for _, e := range events {
		out = append(out, e.Op)
	}
	return out
}

// canceled returns a canceled context.
func canceled(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}
