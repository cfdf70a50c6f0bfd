package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/brig-run/brig"
)

// packagedUnit is the systemd unit of the packages.
//
//go:embed brig.service
var packagedUnit string

const (
	unitName   = "brig.service"
	unitFolder = "/etc/systemd/system"
)

// checkSystemd returns an error if --unit cannot work on this machine.
func checkSystemd() error {
	if os.Geteuid() != 0 {
		return brig.InvalidField("--unit", "only root can change the units of systemd").WithHint("use sudo, or leave out --unit")
	}
	if _, err := os.Stat("/run/systemd/system"); err != nil {
		return brig.InvalidField("--unit", "systemd does not manage this machine").
			WithHint("leave out --unit: the server then runs in the background until the machine stops")
	}
	return nil
}

// useRunningUnit makes systemd also start the running server at boot. It rejects a server that is
// not run by the unit.
func (q *quickstart) useRunningUnit(ctx context.Context, server announcement) error {
	pid, err := runSystemctl(ctx, "show", "--property=MainPID", "--value", unitName)
	if err != nil {
		return err
	}
	if pid != strconv.Itoa(server.PID) {
		return brig.Errorf(brig.FailedPrecondition, "process %d serves the data folder %s already, and %s does not run it", server.PID, q.dir, unitName).
			WithHint("stop it with kill %d, and run brig quickstart --unit again: its sandboxes continue to run", server.PID)
	}
	if q.listen != "" {
		return checkUnitAddress()
	}
	if _, err := runSystemctl(ctx, "enable", unitName); err != nil {
		return err
	}
	q.reportStep("systemd runs the server as %s already, and starts it with the machine", unitName)
	return nil
}

// checkUnitAddress returns the error for --listen with an existing unit.
func checkUnitAddress() error {
	return brig.InvalidField("--listen", "the unit %s exists, and defines the address", unitName).WithHint("set listen in its configuration file")
}

// startUnit makes systemd run the server now and at every boot, and returns the server's URL once
// it is ready. It uses an existing unit unchanged, for example the unit of the Debian package.
func (q *quickstart) startUnit(ctx context.Context) (string, error) {
	_, err := runSystemctl(ctx, "cat", unitName)
	existing := err == nil
	if existing && q.listen != "" {
		return "", checkUnitAddress()
	}
	if existing {
		q.reportStep("the unit %s exists, and is used as it is", unitName)
	} else {
		if err := q.writeUnit(); err != nil {
			return "", err
		}
		if _, err := runSystemctl(ctx, "daemon-reload"); err != nil {
			return "", err
		}
	}
	if _, err := runSystemctl(ctx, "enable", "--now", unitName); err != nil {
		return "", err
	}
	for end := time.Now().Add(quickstartTimeout); time.Now().Before(end); {
		if url := serverOf(q.dir); url != "" {
			q.reportStep("systemd runs the server as %s: stop it with systemctl stop brig; its log is in journalctl -u brig", unitName)
			return url, nil
		}
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
	return "", brig.Errorf(brig.ConnectionFailed, "no server uses the data folder %s after %v", q.dir, quickstartTimeout).
		WithHint("read the log of the unit: journalctl -u brig")
}

// writeUnit writes a unit for this program and this data folder. It never overwrites a file.
func (q *quickstart) writeUnit() error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	program, err = checkOnlyRootReplaces("the program", program, os.Geteuid())
	if err != nil {
		return err
	}
	if err := makeFolder(q.dir); err != nil {
		return err
	}
	config := q.configFile
	if config != "" {
		if config, err = filepath.Abs(config); err != nil {
			return err
		}
		if config, err = checkOnlyRootReplaces("the configuration file", config, os.Geteuid()); err != nil {
			return err
		}
	}
	file := filepath.Join(unitFolder, unitName)
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return brig.Errorf(brig.AlreadyExists, "%s exists, but systemd has not loaded it", file).WithHint("run systemctl daemon-reload, and brig quickstart --unit again")
	}
	if err == nil {
		_, err = f.WriteString(unitFor(program, q.dir, config, q.listen))
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return unwritableError("", file, err)
	}
	return nil
}

// execStart matches the line of a unit that contains the command.
var execStart = regexp.MustCompile(`(?m)^ExecStart=.*$`)

// unitFor returns the packaged unit with another command. The arguments config and listen may be
// empty.
func unitFor(program, dir, config, listen string) string {
	words := []string{program, "serve", "--data-dir", dir}
	if config != "" {
		words = append(words, "--config", config)
	}
	if listen != "" {
		words = append(words, "--listen", listen)
	}
	for i, w := range words {
		words[i] = unitWord(strings.ReplaceAll(w, "$", "$$"))
	}
	// The unit makes the home directories read-only, and the data folder can be there.
	return execStart.ReplaceAllLiteralString(packagedUnit, "ExecStart="+strings.Join(words, " ")+"\nReadWritePaths="+unitWord(dir))
}

// unitWord quotes a word for systemd and escapes specifiers.
func unitWord(word string) string {
	word = strings.ReplaceAll(word, "%", "%%")
	if strings.ContainsAny(word, " \t\"'\\;") {
		return strconv.Quote(word)
	}
	return word
}

// checkOnlyRootReplaces returns the path of a file without symbolic links. It rejects a file that a
// user other than uid and root can change or replace, because the unit would give root's
// permissions to that user. The argument what describes the file in errors.
func checkOnlyRootReplaces(what, file string, uid int) (string, error) {
	refuse := func(format string, args ...any) error {
		e := brig.InvalidField("--unit", "%s %s", what, fmt.Sprintf(format, args...))
		if what == "the program" {
			return e.WithHint("copy it with install -m 755 %s /usr/local/bin/brig, and run /usr/local/bin/brig quickstart --unit", file)
		}
		return e.WithHint("copy it with install -D -m 600 %s /etc/brig/brig.yaml, and use --config /etc/brig/brig.yaml", file)
	}
	real, err := filepath.EvalSymlinks(file)
	if err != nil {
		return "", refuse("%s cannot be read", file)
	}
	for parent := real; ; parent = filepath.Dir(parent) {
		info, owner, err := readOwner(parent)
		if err != nil {
			return "", err
		}
		is := "is"
		if parent != real {
			is = "is below " + parent + ", which is"
		}
		if owner != uid && owner != 0 {
			return "", refuse("%s %s owned by a user who is not root (uid %d)", real, is, owner)
		}
		// In a sticky directory, only the owners of a file and of the directory can replace the
		// file.
		if info.Mode().Perm()&0o022 != 0 && (parent == real || info.Mode()&fs.ModeSticky == 0) {
			return "", refuse("%s %s writable by other users (mode %04o)", real, is, info.Mode().Perm())
		}
		if parent == filepath.Dir(parent) {
			return real, nil
		}
	}
}

// runSystemctl runs systemctl and returns its output, which its error also contains.
func runSystemctl(ctx context.Context, args ...string) (string, error) {
	b, err := exec.CommandContext(ctx, "systemctl", args...).CombinedOutput()
	out := strings.TrimSpace(string(b))
	if err != nil {
		return "", brig.Errorf(brig.FailedPrecondition, "systemctl %s failed", strings.Join(args, " ")).
			WithHint("see systemctl status brig").Because(errors.New(out))
	}
	return out, nil
}
