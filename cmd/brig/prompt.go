package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/brig-run/brig"
)

// prompt reads the user's answers to questions.
type prompt struct {
	in       io.Reader
	out      io.Writer
	terminal bool // a user can answer
}

// promptOf returns the prompt of a command. Questions go to standard error.
func promptOf(c *cli) prompt {
	return prompt{c.stdin, c.stderr, c.terminal || isTerminal(c.stdin)}
}

// confirm asks the user to confirm an action that cannot be undone. It asks
// only on a terminal; scripts do not need to confirm.
func (p prompt) confirm(yes bool, format string, args ...any) error {
	if yes || !p.terminal {
		return nil
	}
	return p.confirmYes(fmt.Sprintf(format, args...))
}

// confirmYes asks a question, and returns an error unless the answer is yes.
func (p prompt) confirmYes(question string) error {
	fmt.Fprintf(p.out, "%s [y/N] ", sanitizeText(question))
	answer, err := readLine(p.in)
	if err != nil {
		return err
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	return brig.Errorf(brig.Canceled, "nothing was changed")
}

// readSecret reads a secret from the terminal without echo. If there is no terminal, it returns an
// empty string.
func (p prompt) readSecret(name string) (string, error) {
	f, ok := p.in.(*os.File)
	if !ok || !isTerminal(f) {
		return "", nil
	}
	_, _ = io.WriteString(p.out, name+" (hidden): ")
	b, err := term.ReadPassword(int(f.Fd()))
	_, _ = io.WriteString(p.out, "\n")
	if err != nil {
		return "", brig.Errorf(brig.InvalidArgument, "cannot read from the terminal").Because(err)
	}
	return string(b), nil
}

// readLine reads one line. It does not read ahead.
func readLine(r io.Reader) (string, error) {
	var line []byte
	var b [1]byte
	for len(line) < 1<<10 {
		n, err := r.Read(b[:])
		if n == 1 && b[0] == '\n' || errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return "", fmt.Errorf("read the answer: %w", err)
		}
		line = append(line, b[:n]...)
	}
	return string(line), nil
}

// addYes adds the flag that skips the confirmation.
func addYes(cmd *cobra.Command, yes *bool) {
	cmd.Flags().BoolVarP(yes, "yes", "y", false, "do not ask for confirmation")
}
