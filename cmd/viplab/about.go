// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"strings"
	"time"

	"mvdan.cc/sh/v3/syntax"

	"github.com/viplab/viplab/internal/suite/engine"
	"github.com/viplab/viplab/internal/suite/report"
	"github.com/viplab/viplab/proxiers/kubeproxy"
	"github.com/viplab/viplab/suite/spec"
)

// describe adds to a report what stamp does, the shard, and the versions and features of its proxiers.
func (f *conformFlags) describe(r *report.Report, o engine.Options, programs []spec.Proxier, began time.Time) error {
	stamp(r, began, f.cluster)
	r.Settings.Fault, r.Settings.Enforcer = string(f.fault), f.proxiers.enforcerName
	if o.Shards > 0 {
		whole, err := engine.Whole(o)
		if err != nil {
			return err
		}
		r.Suite.Shard, r.Suite.Whole = f.shards.shard, whole
	}
	for _, p := range programs {
		r.SetVersion(p.Name(), f.proxiers.version(p))
		r.SetFeatures(p.Name(), p.Features())
	}
	return nil
}

// stamp adds to a report when the run began, its command, and the settings of its cluster.
func stamp(r *report.Report, began time.Time, cluster clusterFlags) {
	r.Date, r.Command, r.WallMS = began.UTC().Truncate(time.Second), commandLine(), time.Since(began).Milliseconds()
	r.Settings = report.Settings{IP: cluster.ip, Pods: cluster.pods, Overlay: cluster.overlay}
}

// version returns the version of a proxier, or an empty text if it is unknown.
func (f *proxierFlags) version(p spec.Proxier) string {
	_, release, _, isKubeProxy := kubeproxy.Release(p)
	switch {
	case isKubeProxy:
		return release
	case f.given("exec") && p.Name() == f.name:
		return f.execVersion
	default:
		return version()
	}
}

// commandLine returns the command of this process, quoted for a shell.
func commandLine() string { return invocation(os.Args[1:]...) }

// invocation returns the command that starts viplab again with these arguments, quoted for a shell.
func invocation(args ...string) string {
	return quoted(append([]string{calledAs(os.Args[0])}, args...))
}

// calledAs returns the word that starts viplab again, given the word that started this process, such as "bin/viplab".
func calledAs(word string) string {
	if word == "/proc/self/exe" { // to the shell this is the shell
		return "viplab"
	}
	return word
}

// quoted returns words as a shell takes them.
func quoted(words []string) string {
	out := make([]string, len(words))
	for i, word := range words {
		text, err := syntax.Quote(word, syntax.LangPOSIX)
		if err != nil { // a word that no shell can take, with a zero byte
			text = word
		}
		out[i] = text
	}
	return strings.Join(out, " ")
}
