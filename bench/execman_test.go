package bench

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/api/execman"
	"github.com/brig-run/brig/api/v1"
	"github.com/brig-run/brig/engine"
)

// BenchmarkExecmanHit measures the latency for a client of the executor manager, over HTTP, with a
// full pool. The documentation of the original manager promises 90 ms.
func BenchmarkExecmanHit(b *testing.B) {
	limits := brig.Limits{Memory: 256 << 20}
	e, _ := newPooledEngine(b, engine.PoolOptions{
		Memory: 1 << 30, Warm: []engine.WarmClass{{Image: brig.HostImage, Language: brig.Python, Limits: limits, Count: 2}},
	})
	actor := brig.Actor{Name: "bench", Tenant: "bench", Role: brig.Operator}
	ctx := brig.WithActor(b.Context(), actor)
	srv := httptest.NewServer(execman.New(execman.Options{Service: e, Actor: actor, Limits: limits}))
	defer srv.Close()
	code := base64.StdEncoding.EncodeToString([]byte("def main():\n    return 42\n"))
	body := fmt.Appendf(nil, `{"code_b64":%q,"language":"python","arguments":{}}`, code)
	var took []time.Duration
	for b.Loop() {
		b.StopTimer()
		awaitPool(b, e, ctx)
		b.StartTimer()
		begun := time.Now()
		resp, err := http.Post(srv.URL+"/run", "application/json", bytes.NewReader(body))
		if err != nil {
			b.Fatal(err)
		}
		var r v1.ExecmanResult
		err = json.NewDecoder(resp.Body).Decode(&r)
		resp.Body.Close()
		took = append(took, time.Since(begun))
		if err != nil || r.Status != v1.ExecmanSuccess || string(r.Result.Value) != "42" {
			b.Fatal(r, err)
		}
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
}
