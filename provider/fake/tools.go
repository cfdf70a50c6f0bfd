package fake

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/interpreter"
	"github.com/brig-run/brig/tool"
)

// call runs a request of a tool whose source is in the small language. Like the
// drivers, it sends the report and then waits until the process is killed.
func (p *process) call(ctx context.Context, o tool.DriverRequest) {
	end := interpreter.Message{Returned: json.RawMessage("null")}
	for line := range strings.Lines(o.Source) {
		if words := strings.Fields(line); len(words) > 0 && !p.runLine(ctx, interpreter.Request{Op: "program"}, words, &end) {
			break
		}
	}
	report := tool.Report{Name: o.Name, Value: end.Returned, State: o.State}
	if f := end.Failure; f != nil {
		report.Failure = &tool.Failure{Name: f.Name, Message: f.Message}
	}
	payload, err := json.Marshal(report)
	if err != nil {
		p.end(1)
		return
	}
	key, err := hex.DecodeString(o.Key)
	if err != nil {
		p.end(1)
		return
	}
	mac := hmac.New(sha256.New, key)
	mac.Write(payload) // a hash's Write never fails
	signed, err := json.Marshal(map[string]any{"type": "report", "size": len(payload), "sum": hex.EncodeToString(mac.Sum(nil)), "payload": string(payload)})
	if err != nil {
		p.end(1)
		return
	}
	p.put(part{brig.FromMessage, signed})
}

// install writes a file for each package to the directory in which layers are
// built.
func (in *instance) install(ctx context.Context, packages []string) error {
	if in.p.OnInstall != nil {
		in.p.OnInstall()
	}
	var files []brig.File
	for _, name := range packages {
		files = append(files, brig.File{Path: name, Data: []byte(name)})
	}
	return in.Put(ctx, tool.LayerDir, files)
}
