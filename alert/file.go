package alert

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"

	"github.com/brig-run/brig"
)

// load finds what fired when the server ended.
func (e *Evaluator) load() {
	if e.File == "" {
		return
	}
	b, err := os.ReadFile(e.File)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	var list []brig.Alert
	if err == nil {
		err = json.Unmarshal(b, &list)
	}
	if err != nil {
		e.Log.Error("read the alerts of before", "err", err)
		return
	}
	for _, a := range list {
		e.alerts[keyOf(a.Name, a.Labels)] = &standing{Alert: a, told: e.Now()}
	}
}

// save keeps what fires. A file that was half written is none: the name is
// given to one that is whole.
func (e *Evaluator) save() error {
	if e.File == "" {
		return nil
	}
	var list []brig.Alert
	for _, a := range e.Alerts() {
		if a.State == brig.AlertFiring {
			list = append(list, a)
		}
	}
	b, err := json.Marshal(list)
	if err != nil {
		return err
	}
	tmp := e.File + ".new"
	if err := os.WriteFile(tmp, b, 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, e.File)
}
