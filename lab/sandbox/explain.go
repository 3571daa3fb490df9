// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/internal/lab/confined"
)

// UnavailableError reports that this machine does not allow a sandbox, with the reason and the remedy.
type UnavailableError struct {
	Step  string // the attempted step: "create namespaces"
	Err   error  // the kernel's answer
	Cause string // the reason, if the machine's settings show it
	Cure  string // the remedy
}

func (e *UnavailableError) Error() string {
	return fmt.Sprintf("%s: %v\n  why:  %s\n  cure: %s", e.Step, e.Err, e.Cause, e.Cure)
}

func (e *UnavailableError) Unwrap() error { return e.Err }

// explain adds the reason to the error of a failed step, if the machine's settings show it.
func explain(step string, err error) error {
	return explainWith(step, err, os.Getuid() == 0 && !self.rootless, confined.Here(), readSetting)
}

// explainWith is explain with the settings below /proc/sys given by setting, which returns "" for a missing one.
func explainWith(step string, err error, root bool, here confined.Place, setting func(string) string) error {
	var cause, cure string
	switch {
	case setting("user/max_user_namespaces") == "0" && !root:
		cause = "user.max_user_namespaces is 0: no user may create a user namespace"
		cure = "run with sudo, or: sudo sysctl user.max_user_namespaces=15000"
	case setting("kernel/unprivileged_userns_clone") == "0" && !root:
		cause = "kernel.unprivileged_userns_clone is 0: only root may create a user namespace"
		cure = "run with sudo, or: sudo sysctl kernel.unprivileged_userns_clone=1"
	case setting("kernel/apparmor_restrict_unprivileged_userns") == "1" && !root:
		cause = "kernel.apparmor_restrict_unprivileged_userns is 1: a user namespace is granted without its " +
			"capabilities"
		cure = "run with sudo, or: sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0"
	case errors.Is(err, unix.ENOSPC):
		cause = "a limit on namespaces is reached: user.max_*_namespaces, or 32 levels of nesting"
		cure = "see sysctl -a --pattern 'max_.*_namespaces'"
	case step == "mount proc" && errors.Is(err, unix.EPERM):
		cause = "parts of /proc are masked here, as container engines do, and the kernel does not let a fresh " +
			"/proc unmask them"
		cure = here.Privileges()
		if here == confined.Machine || here == confined.Container {
			cure = "docker run --privileged, or --security-opt systempaths=unconfined"
		}
	case step == "mount tmpfs on /run" && errors.Is(err, unix.ENOENT):
		cause = "the root file system has no folder /run, as that of a minimal image may lack"
		cure = "mkdir /run, or a line \"RUN mkdir -p /run\" in the image's Dockerfile"
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		cause = "a seccomp filter, a missing CAP_SYS_ADMIN or a security module forbids it, as container engines do"
		cure = here.Privileges()
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOSYS):
		cause = "the kernel is built without one of the namespaces (pid, net, uts, ipc, user), or is older than 5.12"
		cure = "use a distribution's kernel: scripts/vm boots one"
	default:
		return fmt.Errorf("%s: %w", step, err)
	}
	return &UnavailableError{Step: step, Err: err, Cause: cause, Cure: cure}
}

func readSetting(name string) string {
	value, err := os.ReadFile("/proc/sys/" + name)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(value))
}

// wireError is an error on its way from init to the supervisor.
type wireError struct {
	Text              string // of an error that is no refusal
	Step, Cause, Cure string
	Errno             unix.Errno // of a refusal; 0 if it has none
	Detail            string     // of a refusal without a number
}

// encodeError returns an error as text for decodeError.
func encodeError(err error) []byte {
	w := wireError{Text: err.Error()}
	if refusal := (*UnavailableError)(nil); errors.As(err, &refusal) {
		w = wireError{Step: refusal.Step, Cause: refusal.Cause, Cure: refusal.Cure, Detail: refusal.Err.Error()}
		errors.As(refusal.Err, &w.Errno)
	}
	text, _ := json.Marshal(w) // strings and a number
	return text
}

// decodeError returns the error that encodeError was given, as far as callers look at it.
func decodeError(text []byte) error {
	var w wireError
	switch err := json.Unmarshal(text, &w); {
	case err != nil:
		return errors.New(string(text))
	case w.Step == "":
		return errors.New(w.Text)
	case w.Errno != 0:
		return &UnavailableError{Step: w.Step, Err: w.Errno, Cause: w.Cause, Cure: w.Cure}
	}
	return &UnavailableError{Step: w.Step, Err: errors.New(w.Detail), Cause: w.Cause, Cure: w.Cure}
}
