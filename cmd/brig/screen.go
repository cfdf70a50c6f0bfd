package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/interpreter"
	"github.com/brig-run/brig/screen"
)

// foundJSON is the JSON output of the command.
type foundJSON struct {
	Line    int    `json:"line"`
	Column  int    `json:"column"`
	Rule    string `json:"rule"`
	Name    string `json:"name"`
	Message string `json:"message"`
}

func (c runCommands) screenCommand() *cobra.Command {
	var language string
	cmd := &cobra.Command{
		Use:   "screen [flags] FILE",
		Short: "Check code against the screening rules, without running it",
		Long: `Check Python, JavaScript or TypeScript code against the screening rules of the
configuration (--config), or the default rules. The command prints the code that a server
with screening would reject, and exits with 1 if there is any. Code that passes may still
be harmful: the sandbox is the security boundary.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			source, err := readProgram(args[0])
			if err != nil {
				return err
			}
			if language == "" {
				language = languageOfFile(args[0])
			}
			lang, err := brig.ParseLanguage(language)
			if err != nil {
				return err
			}
			return c.screen(cmd.Context(), lang, source)
		},
	}
	cmd.Flags().StringVarP(&language, "language", "l", "", "python, javascript or typescript (default: from the file's extension, else python)")
	return cmd
}

func (c runCommands) screen(ctx context.Context, lang brig.Language, source string) error {
	cfg, err := c.loadConfig()
	if err != nil {
		return err
	}
	if cfg.Screening.Mode == "" || cfg.Screening.Mode == screenOff {
		cfg.Screening.Mode = screenDeny
	}
	rules, err := cfg.Screening.rules()
	if err != nil {
		return err
	}
	if lang == brig.TypeScript {
		compiler := &interpreter.Transpiler{Binary: self, Argv: []string{compilerName}}
		defer compiler.Close()
		if source, err = compiler.Program(ctx, source); err != nil {
			return brig.InvalidField("code", "%v", err).WithHint("fix the error; a TypeScript compiler shows its place")
		}
		lang = brig.JavaScript
	}
	found, err := (&screen.Screener{}).Check(ctx, lang, []byte(source), rules.Rules[lang])
	switch {
	case errors.Is(err, screen.ErrLanguage):
		return brig.InvalidField("language", "%s code cannot be screened", lang).WithHint("use python, javascript or typescript")
	case errors.Is(err, screen.ErrTooLarge):
		return brig.Errorf(brig.PolicyBlocked, "%v", screen.ErrTooLarge).WithHint("shorten the code, and put data into files")
	case err != nil:
		return err
	}
	if len(found) > 0 {
		c.code = 1
	}
	if c.asJSON {
		out := []foundJSON{}
		for _, f := range found {
			out = append(out, foundJSON(f))
		}
		return c.printJSON(out)
	}
	for _, f := range found {
		fmt.Fprintln(c.stdout, f)
	}
	return nil
}
