package interpreter_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/brig-run/brig/interpreter"
	"github.com/rogpeppe/go-internal/txtar"
)

// selfPrograms returns the programs of testdata/self.txtar, which use their own source file. Each
// program prints "ok", or fails.
func selfPrograms(t *testing.T) []txtar.File {
	t.Helper()
	a, err := txtar.ParseFile(filepath.Join("testdata", "self.txtar"))
	if err != nil {
		t.Fatal(err)
	}
	return a.Files
}

// startFor starts the driver for the language of a file, which it derives from the file
// extension.
func startFor(t *testing.T, file string) *driver {
	t.Helper()
	switch filepath.Ext(file) {
	case ".py":
		return startPython(t)
	case ".sh":
		return startBash(t, buildAgent(t))
	}
	return startNode(t)
}

// A program can read its own source file in an empty directory, in a directory with another file
// of the same name, and in a read-only directory.
func TestProgramReadsItsSourceFile(t *testing.T) {
	for _, p := range selfPrograms(t) {
		for _, place := range []string{"empty", "taken", "same", "sealed"} {
			if place == "sealed" && (os.Geteuid() == 0 || strings.Contains(p.Name, "beside")) {
				continue // root may write everywhere; a private file has no siblings
			}
			t.Run(p.Name+"/"+place, func(t *testing.T) {
				t.Parallel()
				d := startFor(t, p.Name)
				d.stdin.Close()
				code := string(p.Data)
				write := func(name, text string) {
					if err := os.WriteFile(filepath.Join(d.dir, name), []byte(text), 0o644); err != nil {
						t.Fatal(err)
					}
				}
				write("data.txt", "ok")
				names := []string{"main.py", "main.js", "main.mjs", "main.sh"}
				for _, name := range names {
					switch place {
					case "taken":
						write(name, "another program")
					case "same":
						write(name, code)
					}
				}
				if place == "sealed" {
					if err := os.Chmod(d.dir, 0o555); err != nil {
						t.Fatal(err)
					}
				}
				end, exit, stdout, stderr := d.runProgram(interpreter.Request{Code: code})
				if exit != 0 || end.Failure != nil || strings.TrimSpace(stdout) != "ok" {
					t.Errorf("exit %d, stdout %q\n%s", exit, stdout, stderr)
				}
				for _, name := range names {
					b, _ := os.ReadFile(filepath.Join(d.dir, name))
					if place == "taken" && string(b) != "another program" {
						t.Errorf("%s was replaced by %q", name, b)
					}
				}
			})
		}
	}
}

// The file of a program that cannot refer to it is not written to the working directory.
func TestProgramFileIsNotWritten(t *testing.T) {
	for name, code := range map[string]string{
		"a.py":  "import os\nprint(os.listdir('.'))\nif __name__ == '__main__': pass",
		"a.js":  "console.log(require('fs').readdirSync('.'))",
		"a.mjs": "import fs from 'fs'\nexport const x = 1\nsetTimeout(() => console.log(fs.readdirSync('.')), 1)",
		"a.sh":  `ls -A`,
	} {
		t.Run(name, func(t *testing.T) {
			d := startFor(t, name)
			d.stdin.Close()
			_, exit, stdout, stderr := d.runProgram(interpreter.Request{Code: code})
			if exit != 0 || strings.Trim(stdout, "[]\n") != "" {
				t.Errorf("exit %d, stdout %q, stderr %s", exit, stdout, stderr)
			}
		})
	}
}

// The driver reports the path of the program's file before a fork, because a forked process
// cannot send messages to the host. It sends no report if the user has a file at that path.
func TestForkAnnouncesProgramFile(t *testing.T) {
	const code = "import os, sys\nif os.fork() == 0:\n    open(getattr(sys.modules['__main__'], '__fi' 'le__')).read()\n    os._exit(0)\nos.wait()"
	for place, want := range map[string]string{"empty": "main.py", "taken": "main-1.py", "same": ""} {
		t.Run(place, func(t *testing.T) {
			d := startPython(t)
			d.stdin.Close()
			text := map[string]string{"taken": "another program", "same": code}[place]
			if text != "" {
				if err := os.WriteFile(filepath.Join(d.dir, "main.py"), []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			d.send(interpreter.Request{Op: "program", Code: code})
			var reported []string
			end := d.readMessage()
			for ; end.Type == "file"; end = d.readMessage() {
				reported = append(reported, filepath.Base(end.Path))
			}
			if d.wait() != 0 || end.Failure != nil || strings.Join(reported, " ") != want {
				t.Errorf("end message %+v, reported files %q, want %q", end, reported, want)
			}
			if _, err := os.Stat(filepath.Join(d.dir, want)); err != nil {
				t.Error(err)
			}
		})
	}
}

// A cell has no source file, even in an interpreter that ran programs during its warm-up.
func TestWarmCellHasNoSourceFile(t *testing.T) {
	d := startPython(t)
	d.send(interpreter.Request{Op: "warm", Env: map[string]string{"BRIG_CELLS": "1"}})
	messages, _, stderr := d.runCell("import os\nif os.fork() == 0:\n    os._exit(0)\nos.wait()[1]")
	if stderr != "" || len(filterMessages(messages, "file")) > 0 || len(filterMessages(messages, "end")) != 1 {
		t.Errorf("messages %+v, stderr %q", messages, stderr)
	}
}
