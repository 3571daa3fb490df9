// SPDX-License-Identifier: Apache-2.0

// Package exec makes a proxier of any program. It serves the Kubernetes API to the program, starts the unmodified
// program on each node, and detects by packets alone when the program has converged.
//
// A black box does not report that it has programmed a change, and waiting for a fixed time proves nothing. So viplab
// creates a canary: a Service of its own, newer than the change. The API delivers changes in order. Once the canary
// answers a connection from the node, the program has therefore seen and programmed everything older.
//
// The same round of work may continue after that: kube-proxy removes conntrack entries and opens health check ports
// after it has written its rules. That work is done when the next round begins. So a second canary, made after the
// first one has answered, has to answer too, unless the program logs the end of each round. See canary.go, confirm.go
// and rounds.go.
package exec

import (
	"context"
	"errors"
	"fmt"
	"os"
	osexec "os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/viplab/viplab/internal/machine"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/suite/spec"
)

// Command describes a program that serves Services.
type Command struct {
	// Name is the proxier's name in reports.
	Name string
	// Argv is the program and its arguments. Each is a template over Values. Split makes Argv from a command line.
	Argv []string
	// Features are the features that the program claims to have.
	Features spec.FeatureSet
	// Configure returns further arguments for a configuration; they are templates too. Nil means that Argv says it all:
	// a scenario with a setting that no word mentions does not run.
	Configure func(spec.ProxyConfig) []string
	// Unconfirmed is for programs that serve no Services, so that canaries cannot show progress. Apply returns at once,
	// and the caller must probe for convergence.
	Unconfirmed bool
	// Rounds, if not nil, recognizes the sync rounds in the program's log. A change is then confirmed as soon as its
	// round ends. Otherwise it is confirmed only when a later round has begun.
	Rounds *Rounds
	// Cleanup is the command that removes what the program leaves behind when it ends; its words are templates too. If
	// it is empty, Instance.Cleanup fails, and Features must not contain spec.Cleanup.
	Cleanup []string
	// KeepFileLimit makes setrlimit(RLIMIT_NOFILE) succeed without effect. It is for a program that demands more open
	// files than it needs and than the machine may allow.
	KeepFileLimit bool
	// Limits bound what the program uses on one node. Fields that are zero have the values of DefaultLimits.
	Limits Limits
}

var namePattern = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)

// New returns the proxier for a command. It returns an error if a template is malformed.
func New(c Command) (spec.Proxier, error) {
	if !namePattern.MatchString(c.Name) {
		return nil, fmt.Errorf("proxier %q: a name is lower case letters, digits and dashes", c.Name)
	}
	if len(c.Argv) == 0 {
		return nil, fmt.Errorf("proxier %s: no command", c.Name)
	}
	if _, err := parseWords(slices.Concat(c.Argv, c.Cleanup)); err != nil {
		return nil, fmt.Errorf("proxier %s: %w", c.Name, err)
	}
	// The program starts in a folder of its own, so a path that is relative to ours must become absolute.
	program := c.Argv[0]
	if strings.ContainsRune(program, filepath.Separator) && !strings.Contains(program, "{{") {
		path, err := filepath.Abs(program)
		if err != nil {
			return nil, fmt.Errorf("proxier %s: %w", c.Name, err)
		}
		c.Argv = append([]string{path}, c.Argv[1:]...)
	}
	return &proxier{command: c}, nil
}

type proxier struct {
	command Command
	proved  atomic.Bool // a process of the program has converged on some node, in all families
}

func (p *proxier) Name() string              { return p.command.Name }
func (p *proxier) Features() spec.FeatureSet { return p.command.Features }
func (p *proxier) Other() spec.Proxier       { return nil }

// Usable returns an error if the program does not exist, unless its name is a template. It does not check that the
// program works on this machine.
func (p *proxier) Usable(context.Context, ...lab.Family) error {
	if strings.Contains(p.command.Argv[0], "{{") {
		return nil
	}
	if _, err := osexec.LookPath(p.command.Argv[0]); err != nil {
		return &spec.UnusableError{Missing: "the program " + p.command.Argv[0], Cure: err.Error()}
	}
	return nil
}

// Start serves the API inside the node and starts the program there.
func (p *proxier) Start(ctx context.Context, node spec.Node) (spec.Instance, error) {
	if node.Config.MinSyncPeriod != nil && machine.Slow() {
		return nil, &spec.UnusableError{
			Missing: "a machine where a sync takes less than the pause between two",
			Cure:    "use one where programs start fast",
		}
	}
	templates, err := p.templates(node.Config)
	if err != nil {
		return nil, err
	}
	loadLegacyTables()
	i := &instance{proxier: p, node: node}
	if err := i.open(ctx); err != nil {
		return nil, errors.Join(err, i.close())
	}
	if i.argv, err = templates.fill(valuesOf(node, i.kubeconfig())); err == nil {
		i.life, err = i.launch()
	}
	if err == nil && i.gate != nil {
		err = i.gate.wait(ctx, i.life)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: start %s: %w", node.Name, p.Name(), err), i.close())
	}
	return i, nil
}

// templates returns the arguments for a configuration.
func (p *proxier) templates(config spec.ProxyConfig) (words, error) {
	argv := p.command.Argv
	if p.command.Configure != nil {
		return parseWords(append(argv[:len(argv):len(argv)], p.command.Configure(config)...))
	}
	all, err := parseWords(argv)
	if err != nil {
		return nil, err
	}
	if untold := all.unmentioned(config); len(untold) > 0 {
		return nil, &spec.UnusableError{
			Missing: "a way to tell it " + strings.Join(untold, ", "),
			Cure:    fmt.Sprintf("mention {{.%s}} in a word of the command, as docs/outside.md shows", untold[0]),
		}
	}
	return all, nil
}

func (i *instance) kubeconfig() string { return filepath.Join(i.node.StateDir, "kubeconfig") }

// environment returns the caller's environment plus the variables that Kubernetes programs expect.
func (i *instance) environment() []string {
	return append(os.Environ(), "KUBECONFIG="+i.kubeconfig(), "NODE_NAME="+i.node.Name)
}
