package agentrun

import (
	"encoding/base64"
	"encoding/json"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/remote"
)

// FuzzEnding verifies that any report of a guest about its end results in an
// outcome within the limits.
func FuzzEnding(f *testing.F) {
	for _, seed := range []string{
		`{"code":0,"value":{"a":1},"stdout":["YQ==","",1],"stderr":["","",0],"dir":"/x","artifacts":[]}`,
		`{"code":-5,"Error":{"name":"E","message":"m","code":"SB005"},"stdout":["",null,-9]}`, `{"code":3,"stdout":[1]}`, `{"value":null}`, `[]`, `null`, ``, `{"code":1e99}`,
	} {
		f.Add(seed, "brig:X:")
	}
	c := Config{AccountID: "1", Region: regions[0], ControlEndpoint: "http://127.0.0.1:1", DataEndpoint: "http://127.0.0.1:1", AllowPrivate: true}
	p, err := Open(brig.ProviderEnv{Log: slog.New(slog.NewTextHandler(io.Discard, nil))}, c)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text, before string) {
		w := wrapped{mark: "brig:X", kept: "/tmp/brig-none"}
		results := []event{{Type: "stdout", Text: before + w.mark + ":" + base64.StdEncoding.EncodeToString([]byte(text)) + ";"}}
		o := &brig.Outcome{}
		o.Started, o.Duration = time.Now(), time.Second
		prog := brig.Program{Language: brig.Python, Limits: brig.Limits{Output: 64}}
		p.fillOutcome(t.Context(), "box", w, o, prog, results, time.Minute)
		remote.LimitOutcome(o, prog)
		if o.ExitCode < 0 || o.ExitCode > 255 || o.Error != nil && (o.Value != nil || o.ExitCode == 0 || strings.HasPrefix(o.Error.Code, "SB")) {
			t.Errorf("it ended with %d, %s, %+v", o.ExitCode, o.Value, o.Error)
		}
		for _, s := range []brig.Output{o.Stdout, o.Stderr} {
			if len(s.Head)+len(s.Tail) > 64 || s.Total < int64(len(s.Head)+len(s.Tail)) {
				t.Errorf("a stream of %d and %d of %d bytes", len(s.Head), len(s.Tail), s.Total)
			}
		}
		if o.Value != nil && !json.Valid(o.Value) {
			t.Errorf("the value is %q", o.Value)
		}
	})
}
