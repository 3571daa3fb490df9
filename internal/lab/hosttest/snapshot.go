// SPDX-License-Identifier: Apache-2.0

// Package hosttest proves that a program leaves the machine as it found it, whichever way it ends.
//
// The machine is whatever the caller runs on. Tests run in a sandbox, where nothing else changes it.
package hosttest

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Snapshot is what of a machine a lab could change: for each kind of thing ("links", "mounts", ...) its lines.
type Snapshot map[string][]string

// commands print the network state, without packet counters. A lab cannot have used a program that is missing.
var commands = map[string][]string{
	"links":            {"ip", "-details", "link", "show"},
	"addresses":        {"ip", "address", "show"},
	"routes":           {"ip", "route", "show", "table", "all"},
	"routes of IPv6":   {"ip", "-6", "route", "show", "table", "all"},
	"policy rules":     {"ip", "rule", "show"},
	"neighbours":       {"ip", "neighbour", "show", "nud", "all"},
	"nft rules":        {"nft", "--stateless", "list", "ruleset"},
	"iptables legacy":  {"iptables-legacy-save"},
	"ip6tables legacy": {"ip6tables-legacy-save"},
	"ip sets":          {"ipset", "list", "-output", "save"},
}

// Take reads the machine.
func Take() (Snapshot, error) {
	s := Snapshot{}
	for name, argv := range commands {
		out, err := exec.Command(argv[0], argv[1:]...).Output()
		if errors.Is(err, exec.ErrNotFound) {
			continue
		}
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
			out = append(out, exit.Stderr...) // "not supported by this kernel" is an answer too
		} else if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		s[name] = lines(out)
	}
	s["neighbours"] = slices.DeleteFunc(s["neighbours"], cached)
	for name, read := range map[string]func() ([]string, error){
		"sysctls": sysctls, "mounts": mounts, "named namespaces": namedNamespaces, "host name": hostname,
	} {
		var err error
		if s[name], err = read(); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return s, s.addProcesses()
}

// Diff returns what is in one snapshot only: "-" lines were there before, "+" lines are there after.
func (s Snapshot) Diff(after Snapshot) []string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(s)) {
		for _, line := range s[name] {
			if !slices.Contains(after[name], line) {
				out = append(out, name+": - "+line)
			}
		}
		for _, line := range after[name] {
			if !slices.Contains(s[name], line) {
				out = append(out, name+": + "+line)
			}
		}
	}
	return out
}

// counters are sysctls that only report.
var counters = map[string]bool{"netfilter/nf_conntrack_count": true}

func sysctls() ([]string, error) {
	const root = "/proc/sys/net"
	var out []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || counters[strings.TrimPrefix(path, root+"/")] {
			return nil // what cannot be read cannot be compared
		}
		if value, err := os.ReadFile(path); err == nil {
			out = append(out, path+" = "+strings.TrimSpace(string(value)))
		}
		return nil
	})
	return out, err
}

func hostname() ([]string, error) {
	name, err := os.Hostname()
	return []string{name}, err
}

func mounts() ([]string, error) {
	table, err := os.ReadFile("/proc/self/mountinfo")
	return lines(table), err
}

func namedNamespaces() ([]string, error) { return filepath.Glob("/run/netns/*") }

// addProcesses lists the processes other than this one, and the network namespaces that they are in.
func (s Snapshot) addProcesses() error {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return err
	}
	spaces := map[string]bool{}
	for _, dir := range dirs {
		if space, err := os.Readlink(dir + "/ns/net"); err == nil {
			spaces[space] = true
		}
		stat, err := os.ReadFile(dir + "/stat")
		if err != nil {
			continue // it has just ended
		}
		// The start time tells a process from a later one with the same number.
		name, rest, _ := bytes.Cut(stat, []byte(") "))
		fields := bytes.Fields(rest)
		const startTime = 22 - 3 // proc(5) counts from 1, and rest begins with field 3
		if len(fields) <= startTime || filepath.Base(dir) == fmt.Sprint(unix.Getpid()) {
			continue
		}
		s["processes"] = append(s["processes"], fmt.Sprintf("%s) started %s", name, fields[startTime]))
	}
	s["network namespaces"] = slices.Sorted(maps.Keys(spaces))
	return nil
}

// cached reports whether a line of "neighbours" is an entry that the kernel makes when something sends by a device
// without ARP, such as lo, and forgets when it likes.
func cached(neighbour string) bool { return strings.HasSuffix(strings.TrimSpace(neighbour), "NOARP") }

func lines(b []byte) []string {
	text := strings.TrimSpace(string(b))
	if text == "" {
		return nil
	}
	return strings.Split(text, "\n")
}
