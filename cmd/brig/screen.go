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

// foundJSON is what the command prints as JSON.
type foundJSON struct {
	Line    int    `json:"line"`
	Column  int    `json:"column"`
	Rule    string `json:"rule"`
	Name    string `json:"name"`
	Message string `json:"message"`
}

func (c *cli) screenCommand() *cobra.Command {
	var language string
	cmd := &cobra.Command{
		Use:   "screen [flags] FILE",
		Short: "Find what a screening server would refuse in code, without running it",
		Long: `Find in Python, JavaScript or TypeScript what a server that screens code would
refuse. The rules are those of the configuration file that --config names, or
the default ones. Exits with 1 when something is found. What is not found may
still be harmful: screening is advice, the sandbox is the boundary.`,
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
	cmd.Flags().StringVarP(&language, "language", "l", "", "python, javascript or typescript (default: by the file's name, else python)")
	return cmd
}

func (c *cli) screen(ctx context.Context, lang brig.Language, source string) error {
	cfg, err := c.config()
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
			return brig.InvalidField("code", "%v", err).WithHint("see what a TypeScript compiler says")
		}
		lang = brig.JavaScript
	}
	found, err := (&screen.Screener{}).Check(ctx, lang, []byte(source), rules.Rules[lang])
	switch {
	case errors.Is(err, screen.ErrLanguage):
		return brig.InvalidField("language", "%s cannot be screened", lang).WithHint("give python, javascript or typescript")
	case errors.Is(err, screen.ErrTooLarge):
		return brig.Errorf(brig.PolicyBlocked, "%v", screen.ErrTooLarge).WithHint("give less code; put data into files")
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
