package brig_test

import (
	"context"
	"errors"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig"
)

func TestValidName(t *testing.T) {
	for name, want := range map[string]bool{
		"a": true, "a-b-0": true, "0a": true, strings.Repeat("x", 63): true,
		"": false, "-a": false, "A": false, "a_b": false, "a.b": false, "a/b": false, "a b": false,
		"ä": false, "a\x00": false, strings.Repeat("x", 64): false, "..": false,
	} {
		if got := brig.ValidName(name); got != want {
			t.Errorf("ValidName(%q) = %t", name, got)
		}
	}
}

func TestLimitRangeFill(t *testing.T) {
	b := brig.DefaultLimitRange()
	for _, c := range []struct {
		in    brig.Limits
		field string // field of the error; empty for none
	}{
		{brig.Limits{}, ""},
		{brig.Limits{Memory: 64 * brig.MiB, CPUs: 0.5, Processes: 10, OpenFiles: 64, Disk: 2 * brig.MiB, Output: 2048}, ""},
		{brig.Limits{Memory: -1}, "limits.memory"},
		{brig.Limits{Memory: 1}, "limits.memory"},
		{brig.Limits{Memory: math.MaxInt64}, "limits.memory"},
		{brig.Limits{CPUs: -0.1}, "limits.cpus"},
		{brig.Limits{CPUs: math.NaN()}, "limits.cpus"},
		{brig.Limits{CPUs: math.Inf(1)}, "limits.cpus"},
		{brig.Limits{Processes: -5}, "limits.processes"},
		{brig.Limits{OpenFiles: 1}, "limits.open_files"},
		{brig.Limits{Disk: 1}, "limits.disk"},
		{brig.Limits{Output: 1 << 40}, "limits.output"},
	} {
		got, err := b.Fill(c.in)
		if c.field == "" {
			if err != nil || got.Memory == 0 || got.CPUs == 0 || got.Processes == 0 || got.OpenFiles == 0 || got.Disk == 0 || got.Output == 0 {
				t.Errorf("Fill(%+v) = %+v, %v", c.in, got, err)
			}
			continue
		}
		if e := brig.AsError(err); e == nil || e.Field != c.field || e.Kind != brig.InvalidArgument || e.Hint == "" {
			t.Errorf("Fill(%+v): %v, want an error about %s with a hint", c.in, err, c.field)
		}
		if c.in.Memory > 0 && err != nil && strings.Contains(err.Error(), "-") {
			t.Errorf("Fill(%+v): %v, which names a negative size", c.in, err)
		}
	}
	for d, ok := range map[time.Duration]bool{0: true, time.Second: true, -1: false, time.Microsecond: false, 1000 * time.Hour: false} {
		if _, err := b.FillTTL("ttl_ms", d); (err == nil) != ok {
			t.Errorf("FillTTL(%v): %v", d, err)
		}
	}
}

// TestEveryKindHasUniqueCode checks that every kind has its own code, that SB001 to SB009 are as
// documented, and that no message contains the cause.
func TestEveryKindHasUniqueCode(t *testing.T) {
	seen := map[string]brig.Kind{}
	for _, k := range brig.Kinds {
		if other, taken := seen[k.Code()]; taken {
			t.Errorf("%s and %s share %s", k, other, k.Code())
		}
		seen[k.Code()] = k
	}
	for code, want := range map[string]brig.Kind{
		"SB001": brig.NotInitialized, "SB002": brig.InvalidConfig, "SB003": brig.ConnectionFailed,
		"SB004": brig.CreationFailed, "SB005": brig.Timeout, "SB006": brig.OutOfMemory,
		"SB007": brig.PolicyBlocked, "SB008": brig.RateLimited, "SB009": brig.Unavailable,
	} {
		if seen[code] != want {
			t.Errorf("%s is %s, want %s", code, seen[code], want)
		}
	}
	secret := errors.New("a path and a password")
	for err, kind := range map[error]brig.Kind{
		secret:                   brig.Internal,
		context.Canceled:         brig.Canceled,
		context.DeadlineExceeded: brig.Timeout,
		brig.Errorf(brig.NotFound, "no such thing").Because(secret): brig.NotFound,
		brig.Errorf(brig.Internal, "detail: %v", secret):            brig.Internal,
	} {
		e := brig.AsError(err)
		if e.Kind != kind || strings.Contains(e.Message+e.Hint, "password") {
			t.Errorf("AsError(%v) = %s %q", err, e.Kind, e.Message)
		}
	}
	if brig.AsError(nil) != nil || brig.KindOf(nil) != "" {
		t.Error("nil is an error")
	}
}

// TestOpsMatchService checks that every method of Service has a row in Ops, and that
// every row has a method.
func TestOpsMatchService(t *testing.T) {
	rows := map[string]bool{}
	names := map[string]bool{}
	for _, op := range brig.Ops {
		if rows[op.Method] || names[op.Name] || op.Role == brig.Nobody {
			t.Errorf("row %+v is there twice or open to nobody", op)
		}
		rows[op.Method], names[op.Name] = true, true
	}
	for _, m := range methods(reflect.TypeFor[brig.Service](), "") {
		if !rows[m] {
			t.Errorf("Service.%s has no row", m)
		}
		delete(rows, m)
	}
	for m := range rows {
		t.Errorf("row of %s, which Service does not have", m)
	}
	for _, op := range slices.Concat(brig.KernelOps, brig.TemplateOps) {
		if names[op.Name] || op.Method != "" || op.Sandbox || op.Role == brig.Nobody {
			t.Errorf("an API's row %+v is a duplicate, Service's or without a role", op)
		}
		names[op.Name] = true
		if err := brig.CheckScopes([]string{op.Name}); err != nil {
			t.Errorf("%s is no scope: %v", op.Name, err)
		}
	}
}

func TestFormatBytes(t *testing.T) {
	for n, want := range map[int64]string{0: "0B", 1: "1B", 1024: "1KiB", 512 * brig.MiB: "512MiB", brig.GiB + 1: "1073741825B", 2 * brig.GiB: "2GiB"} {
		if got := brig.FormatBytes(n); got != want {
			t.Errorf("FormatBytes(%d) = %s, want %s", n, got, want)
		}
	}
}

// methods lists the operations of an interface. A method that only returns another
// interface of the package is not an operation, but the methods of that interface
// are operations.
func methods(s reflect.Type, prefix string) (out []string) {
	for i := range s.NumMethod() {
		m := s.Method(i)
		if m.Type.NumOut() == 1 && m.Type.Out(0).PkgPath() == s.PkgPath() && m.Type.Out(0).Kind() == reflect.Interface {
			out = append(out, methods(m.Type.Out(0), prefix+m.Name+".")...)
			continue
		}
		out = append(out, prefix+m.Name)
	}
	return out
}
