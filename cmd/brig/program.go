//go:build !bench

package main

import "github.com/spf13/cobra"

// program returns the root command of this program.
func (c *cli) program() *cobra.Command { return c.root() }
