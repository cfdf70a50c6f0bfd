package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/brig-run/brig"
)

// argumentsBeforeProgram lists the commands that end with a program and its arguments. The value is
// the number of arguments before the program. brig run takes one more if its first argument is a
// source file.
var argumentsBeforeProgram = map[string]int{"run": 0, "sandbox exec": 1, "sandbox start": 1}

// separateCommand inserts "--" before the program in a command line such as "brig sandbox exec one
// ls -la", so that the program's flags are not parsed as flags of brig. A command line that
// contains "--" is unchanged.
func separateCommand(root *cobra.Command, args []string) []string {
	cmd, rest, err := root.Find(args)
	if err != nil || !cmd.HasParent() {
		return args
	}
	path := strings.Fields(cmd.CommandPath())[1:]
	before, ok := argumentsBeforeProgram[strings.Join(path, " ")]
	if !ok {
		return args
	}
	count := 0
	for i := 0; i < len(rest); i++ {
		word := rest[i]
		switch {
		case word == "--":
			return args
		case strings.HasPrefix(word, "-") && word != "-":
			if takesNextWord(cmd, word) {
				i++
			}
			continue
		case count == 0 && path[0] == "run" && isSource(word):
			before = 1
		}
		if count == before {
			return slices.Concat(path, rest[:i], []string{"--"}, rest[i:])
		}
		count++
	}
	return args
}

// takesNextWord reports whether the word after the flag in word is the value of that flag.
func takesNextWord(cmd *cobra.Command, word string) bool {
	if name, long := strings.CutPrefix(word, "--"); long {
		f := cmd.Flag(name) // nil for a name with "=VALUE"
		return f != nil && f.NoOptDefVal == ""
	}
	for i, letter := range word[1:] {
		var f *pflag.Flag
		if letter < 0x80 {
			f = cmd.Flags().ShorthandLookup(string(letter))
		}
		if f != nil && f.NoOptDefVal == "" {
			return i == len(word)-2 // otherwise the rest of the word is the value
		}
	}
	return false
}

// sourceLanguages maps the extensions of source files to their languages.
var sourceLanguages = map[string]string{
	".py": "python", ".js": "javascript", ".mjs": "javascript", ".cjs": "javascript",
	".ts": "typescript", ".mts": "typescript", ".sh": "bash", ".bash": "bash",
}

// isSource reports whether an argument of brig run is a source file: "-" for standard input, a name
// with the extension of a language, or an existing file. Any other argument is the name of a
// program in the image.
func isSource(name string) bool {
	if name == "-" || sourceLanguages[strings.ToLower(filepath.Ext(name))] != "" {
		return true
	}
	info, err := os.Stat(name)
	return err == nil && info.Mode().IsRegular()
}

// languageOfFile returns the language of a source file by its extension, or Python if the extension
// is unknown.
func languageOfFile(name string) string {
	if language, ok := sourceLanguages[strings.ToLower(filepath.Ext(name))]; ok {
		return language
	}
	return string(brig.Python)
}

// scriptWithArguments returns the interpreter command that runs a source file
// with arguments, and the file to write into the sandbox.
func scriptWithArguments(name, source string, language brig.Language, args []string) ([]string, brig.File, error) {
	interpreter, ok := map[brig.Language]string{brig.Python: "python3", brig.JavaScript: "node", brig.Bash: "bash"}[language]
	if !ok {
		return nil, brig.File{}, brig.Errorf(brig.InvalidArgument, "a %s program takes no arguments after --", language).
			WithHint("pass values to its function main with --args '{…}'")
	}
	base := filepath.Base(name)
	if name == "-" {
		base = "main"
	}
	return append([]string{interpreter, base}, args...), brig.File{Path: base, Data: []byte(source)}, nil
}
