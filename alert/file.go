package alert

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"syscall"

	"github.com/brig-run/brig"
)

// load reads the alerts that fired when the previous server stopped.
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
		e.Log.Error("failed to read the stored alerts", "err", err)
		return
	}
	for _, a := range list {
		e.alerts[keyOf(a.Name, a.Labels)] = &alertState{Alert: a, notified: e.Now()}
	}
}

// save stores the firing alerts. It renames a complete file, so that a partial
// write never replaces the old file.
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
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	if _, err := f.Write(b); err != nil {
		return errors.Join(err, f.Close())
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(tmp, e.File)
}
