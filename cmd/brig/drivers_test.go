package main

import (
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http/httptest"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine"
	"github.com/brig-run/brig/observe"
	"github.com/brig-run/brig/provider/agentrun"
	"github.com/brig-run/brig/provider/agentrun/agentruntest"
	"github.com/brig-run/brig/schema"
)

// TestCallsAreCounted checks that calls to a remote provider are counted by region and status.
// Rejections at capacity and failures are counted separately.
func TestCallsAreCounted(t *testing.T) {
	double := agentruntest.New(agentruntest.Options{
		ID: "LTAI", Secret: "secret", Account: "1431999136518149", Region: "cn-beijing",
		Machine: func(string) (agentruntest.Machine, error) { return nil, errors.New("no program runs here") },
	})
	srv := httptest.NewServer(double)
	defer srv.Close()
	registry := prometheus.NewRegistry()
	metrics, err := observe.New(registry, observe.Options{})
	if err != nil {
		t.Fatal(err)
	}
	const id = agentrun.Name + "@cn"
	o := engine.Options{Log: slog.New(slog.DiscardHandler)}
	(&providersConfig{}).options(t.TempDir(), "", metrics, &o)
	raw, err := json.Marshal(map[string]any{
		"access_key_id": "LTAI", "access_key_secret": "secret", "account_id": "1431999136518149", "region": "cn-beijing",
		"control_endpoint": srv.URL, "data_endpoint": srv.URL, "allow_private": true,
	})
	if err != nil {
		t.Fatal(err)
	}
	var p brig.Provider
	for _, d := range o.Drivers {
		if d.Name != agentrun.Name {
			continue
		}
		config := d.Config()
		if wrong := schema.Decode(raw, config); len(wrong) > 0 {
			t.Fatalf("%+v", wrong)
		}
		if p, err = d.Open(t.Context(), o.DriverEnv(id), config); err != nil {
			t.Fatal(err)
		}
	}
	defer p.(io.Closer).Close()
	check := p.(brig.Checker)
	if err := check.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, status := range []int{429, 500, 500} {
		double.Fail("ListTemplates", agentruntest.Failure{Status: status, Code: "Injected"})
		if check.Check(t.Context()) == nil {
			t.Errorf("an answer of %d is none", status)
		}
	}
	// The label values are, in this order, the status or the operation, the provider and the
	// region.
	got := map[string]float64{}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				name += " " + l.GetValue()
			}
			got[name] = m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	region := " " + id + " cn-beijing"
	for name, want := range map[string]float64{
		"brig_api_calls_total 200" + region: 1, "brig_api_calls_total 429" + region: 1, "brig_api_calls_total 500" + region: 2,
		"brig_api_errors_total 200" + region: 0, "brig_api_errors_total 429" + region: 1, "brig_api_errors_total 500" + region: 2,
		"brig_api_throttled_total" + region: 1, "brig_api_seconds ListTemplates" + region: 4,
	} {
		if got[name] != want {
			t.Errorf("%s is %v, want %v", name, got[name], want)
		}
	}
}
