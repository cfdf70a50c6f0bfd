package mcp

// addTools registers all tools. The server has no other tools.
func (d *toolServer) addTools(s *toolbox) {
	add(s, tool{
		name: "run_code", title: "Run code", effect: destructive, openWorld: true,
		doc: "Run code in Python, JavaScript, TypeScript or bash. With a sandbox, variables and files stay for the next call, and the last expression's value is the result. Without one it runs in a fresh sandbox.",
	}, d.runCode)
	add(s, tool{
		name: "run_shell", title: "Run a shell command", effect: destructive, openWorld: true,
		doc: "Run a script with the image's shell, in a sandbox or in a fresh one.",
	}, d.runShell)

	add(s, tool{
		name: "create_sandbox", title: "Create a sandbox", effect: additive,
		doc: "Create a sandbox that stays until it is not used for ttl_seconds.",
	}, d.createSandbox)
	add(s, tool{
		name: "list_sandboxes", title: "List sandboxes", effect: readOnly, large: true, doc: "List sandboxes that run or are paused, newest first.",
		choices: map[string][]any{"state": stateChoices()},
	}, d.listSandboxes)
	add(s, tool{name: "get_sandbox", title: "Get a sandbox", effect: readOnly, doc: "Describe a sandbox."}, d.getSandbox)
	add(s, tool{name: "extend_sandbox", title: "Extend a sandbox's life", effect: additive, doc: "Set a later end for an idle sandbox."}, d.extendSandbox)
	add(s, tool{name: "remove_sandbox", title: "Remove a sandbox", effect: destructive, doc: "End a sandbox with everything in it, and forget it."}, d.removeSandbox)

	add(s, tool{
		name: "pause_sandbox", title: "Pause a sandbox", effect: additive,
		doc: "Save a sandbox's memory and files on disk, and end its processes on the server. The next use of it continues it.",
	}, d.pauseSandbox)
	add(s, tool{name: "resume_sandbox", title: "Resume a sandbox", effect: additive, doc: "Continue a paused sandbox ahead of its next use."}, d.resumeSandbox)
	add(s, tool{
		name: "fork_sandbox", title: "Copy a sandbox", effect: additive,
		doc: "Make copies of a running or paused sandbox, with its variables, programs and files, to try several ways from one state. All copies are made, or none.",
	}, d.forkSandbox)

	add(s, tool{name: "create_context", title: "Create a code context", effect: additive, doc: "Start one more interpreter in a sandbox, with variables of its own."}, d.createContext)
	add(s, tool{name: "list_contexts", title: "List code contexts", effect: readOnly, doc: "List a sandbox's interpreters, oldest first."}, d.listContexts)
	add(s, tool{name: "interrupt_context", title: "Interrupt code", effect: additive, doc: "Interrupt the code that runs in a context, as Ctrl-C does."}, d.interruptContext)
	add(s, tool{name: "restart_context", title: "Restart a code context", effect: destructive, doc: "End a context's interpreter with its variables, and start another."}, d.restartContext)
	add(s, tool{name: "remove_context", title: "Remove a code context", effect: destructive, doc: "End a context for good."}, d.removeContext)

	add(s, tool{name: "read_file", title: "Read a file", effect: readOnly, doc: "Read a file of a sandbox, or a part of it."}, d.readFile)
	add(s, tool{name: "write_file", title: "Write a file", effect: destructive, doc: "Write a file of a sandbox. One that is there is replaced."}, d.writeFile)
	add(s, tool{name: "list_files", title: "List files", effect: readOnly, doc: "List a directory of a sandbox."}, d.listFiles)
	add(s, tool{name: "remove_file", title: "Remove a file", effect: destructive, doc: "Remove a file of a sandbox, or a directory with all that is below."}, d.removeFile)

	add(s, tool{name: "start_process", title: "Start a process", effect: additive, doc: "Start a program in a sandbox that runs on by itself, for example a server."}, d.startProcess)
	add(s, tool{name: "list_processes", title: "List processes", effect: readOnly, doc: "List the programs that were started in a sandbox, oldest first."}, d.listProcesses)
	add(s, tool{name: "process_output", title: "Read a process's output", effect: readOnly, doc: "Read a program's output, and wait briefly for more."}, d.readProcessOutput)
	add(s, tool{
		name: "signal_process", title: "Signal a process", effect: destructive, doc: "Send a signal to a program and its group.",
		choices: map[string][]any{"signal": {"SIGTERM", "SIGINT", "SIGHUP", "SIGKILL", "SIGUSR1", "SIGUSR2", "SIGSTOP", "SIGCONT"}},
	}, d.signalProcess)
	add(s, tool{name: "http_request", title: "Call a port", effect: additive, doc: "Make an HTTP request to a server that listens on a port in a sandbox, on its loopback, too."}, d.sendHTTPRequest)
	add(s, tool{name: "read_log", title: "Read a sandbox's log", effect: readOnly, large: true, doc: "Read the end of the output of a sandbox's programs, also after its end."}, d.readLog)

	add(s, tool{name: "list_images", title: "List images", effect: readOnly, doc: "List the images from which sandboxes can be made."}, d.listImages)
	add(s, tool{name: "pull_image", title: "Pull an image", effect: additive, openWorld: true, doc: "Fetch an image from a registry. Operators may."}, d.pullImage)
	add(s, tool{name: "list_templates", title: "List templates", effect: readOnly, doc: "List the templates from which sandboxes can be made."}, d.listTemplates)
}
