// SPDX-License-Identifier: Apache-2.0

// Package release builds commands of Kubernetes releases, unmodified, from the Go modules of the release and nothing
// else, and keeps them: a module with no code of its own requires k8s.io/kubernetes and builds a command of it. It also
// builds small programs that use libraries of a release, such as client-go. Nothing of Kubernetes gets into the module
// graph of this project.
package release

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"go/version"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Default is the version to build unless the user asks for another.
const Default = "v1.36.3"

// others are further versions that are known to build.
const others = "v1.34.4, v1.33.4, v1.31.4, v1.30.4, v1.25.9, v1.24.17"

// Known returns versions that are known to build, Default first.
func Known() []string { return append([]string{Default}, strings.Split(others, ", ")...) }

// ErrNoToolchain says that there is no go command to build with.
var ErrNoToolchain = errors.New("the Go toolchain is not installed")

// versionPattern matches the tag of a release.
var versionPattern = regexp.MustCompile(`^v1\.[0-9]+\.[0-9]+$`)

// CheckVersion returns an error unless the version has the form of a release's tag.
func CheckVersion(version string) error {
	if !versionPattern.MatchString(version) {
		return fmt.Errorf("version %q: want one like %s", version, Default)
	}
	return nil
}

// Command is a command of a release.
type Command struct {
	Name    string // "kube-proxy"
	Version string // "v1.36.3"
	// Module is the path of another module that is built instead of Kubernetes, with the versions that it requires itself.
	// Version is that of the module then, and Package must be set. Empty means k8s.io/kubernetes.
	Module string
	// Package is the import path; empty means the folder of this name in cmd. The release decides its version.
	Package string
	// Tests says that the binary is that of the package's tests, as "go test -c" builds it. The zero value builds a
	// command.
	Tests bool
	// Source is the text of a program, one file, that imports packages of the release's modules. The program is built
	// instead of a command of the release. Empty means a command of the release.
	Source string
}

func (c Command) String() string { return c.Name + " " + c.Version }

func (c Command) pkg() string {
	if c.Source != "" {
		return "."
	}
	return cmp.Or(c.Package, "k8s.io/kubernetes/cmd/"+c.Name)
}

func (c Command) module() string { return cmp.Or(c.Module, "k8s.io/kubernetes") }

// Kubectl returns the path of a kubectl to test with: the one that the variable VIPLAB_KUBECTL names, or that of a
// release, which it builds if it is not there. Call it first outside the sandbox, where there is a network.
func Kubectl(ctx context.Context, version string, progress io.Writer) (string, error) {
	if path := os.Getenv("VIPLAB_KUBECTL"); path != "" {
		_, err := os.Stat(path)
		return path, err
	}
	command := Command{Name: "kubectl", Version: version}
	path, err := command.Path()
	if err == nil {
		err = command.Build(ctx, progress)
	}
	if err != nil {
		err = fmt.Errorf("%w\nVIPLAB_KUBECTL may name a kubectl that is there", err)
	}
	return path, err
}

// Path returns where the binary is, or will be once it has been built. Each source text has a path of its own.
func (c Command) Path() (string, error) {
	dir, err := CacheDir()
	version := c.Version
	if c.Source != "" {
		version += fmt.Sprintf("-%.4x", sha256.Sum256([]byte(c.Source)))
	}
	return filepath.Join(dir, c.Name, version, c.Name), err
}

// CacheDir returns the folder of what is built or downloaded once: VIPLAB_CACHE, or viplab in the user's cache folder.
func CacheDir() (string, error) {
	if dir := os.Getenv("VIPLAB_CACHE"); dir != "" {
		return filepath.Abs(dir)
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", errors.New("neither VIPLAB_CACHE nor HOME is set")
	}
	return filepath.Join(dir, "viplab"), nil
}

// Announcement says that the command is being built, and what that costs.
func (c Command) Announcement() string {
	took := "3 minutes"
	if c.Tests {
		took = "10 minutes"
	}
	return fmt.Sprintf("building %s, the first time only: about %s on 2 cores", c, took)
}

// Build makes the binary, unless it is there, and prints what takes time. It needs the network. The binary
// appears at its path at once and whole. A second build of the same command waits for the first.
func (c Command) Build(ctx context.Context, progress io.Writer) error {
	goal, err := c.Path()
	if err != nil {
		return err
	}
	if _, err := os.Stat(goal); err == nil {
		return nil
	}
	if _, err := exec.LookPath("go"); err != nil {
		return fmt.Errorf("build %s: %w", c, ErrNoToolchain)
	}
	if err := os.MkdirAll(filepath.Dir(goal), 0o755); err != nil {
		return err
	}
	unlock, err := lock(ctx, filepath.Dir(goal), progress)
	if err != nil {
		return err
	}
	defer unlock()
	if _, err := os.Stat(goal); err == nil {
		return nil // another process has built it meanwhile
	}
	dir, err := os.MkdirTemp(filepath.Dir(goal), "building-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	began := time.Now()
	fmt.Fprintf(progress, "%s ...\n", c.Announcement())
	if err := (builder{c, dir}).run(ctx); err != nil {
		return err
	}
	if err := os.Rename(filepath.Join(dir, c.Name), goal); err != nil {
		return err
	}
	fmt.Fprintf(progress, "built %s in %s: %s\n", c, time.Since(began).Round(time.Second), goal)
	return nil
}

// lock locks a folder of builds against other processes, and removes what killed ones have left there.
func lock(ctx context.Context, folder string, progress io.Writer) (unlock func(), err error) {
	f, err := os.Open(folder)
	if err != nil {
		return nil, err
	}
	if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		fmt.Fprintf(progress, "waiting for the build of another process in %s ...\n", folder)
		locked := make(chan error, 1)
		go func() { locked <- unix.Flock(int(f.Fd()), unix.LOCK_EX) }()
		select {
		case err = <-locked:
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", folder, err)
	}
	left, _ := filepath.Glob(filepath.Join(folder, "building-*"))
	for _, dir := range left {
		_ = os.RemoveAll(dir)
	}
	return func() { f.Close() }, nil
}

// builder builds in a folder.
type builder struct {
	Command
	dir string
}

func (b builder) run(ctx context.Context) error {
	m, err := b.download(ctx)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(b.dir, "go.mod"), m.wrapper(b.Command), 0o644); err != nil {
		return err
	}
	if b.Source != "" {
		if err := os.WriteFile(filepath.Join(b.dir, "main.go"), []byte(b.Source), 0o644); err != nil {
			return err
		}
	}
	how := []string{"build"}
	if b.Tests {
		how = []string{"test", "-c", "-vet=off"} // vet would check all packages that the tests import
	}
	_, err = b.tool(ctx, append(how, "-mod=mod", "-trimpath", "-buildvcs=false", "-ldflags", b.linkerFlags(),
		"-o", b.Name, b.pkg())...)
	return err
}

// download gets the release's own module and reads its go.mod.
func (b builder) download(ctx context.Context) (*module, error) {
	out, err := b.tool(ctx, "mod", "download", "-json", b.module()+"@"+b.Version)
	if err != nil {
		return nil, err
	}
	var downloaded struct{ GoMod string }
	if err := json.Unmarshal(out, &downloaded); err != nil {
		return nil, fmt.Errorf("go mod download: %w", err)
	}
	if out, err = b.tool(ctx, "mod", "edit", "-json", downloaded.GoMod); err != nil {
		return nil, err
	}
	m := &module{}
	if err := json.Unmarshal(out, m); err != nil {
		return nil, fmt.Errorf("go mod edit: %w", err)
	}
	return m, nil
}

// tool runs the go command and returns what it printed.
func (b builder) tool(ctx context.Context, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = b.dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off")
	// If this process is killed, the go command tidies up and ends. The signal is tied to the forking thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGINT}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, b.explain(args, errors.Join(err, errors.New(lastLines(stderr.String()+stdout.String()))))
	}
	return stdout.Bytes(), nil
}

// notServed matches the error of the go command when a proxy does not serve a module.
var notServed = regexp.MustCompile(`\S+: (403|404|410) |unknown revision|not available|` +
	`no such host|connection refused|i/o timeout`)

func (b builder) explain(args []string, err error) error {
	if notServed.MatchString(err.Error()) {
		return fmt.Errorf("%s: the Go module proxy does not hold this release whole, or cannot be reached; "+
			"%s and %s are known to build: %w", b.Command, Default, others, err)
	}
	return fmt.Errorf("build %s: go %s: %w", b.Command, strings.Join(args[:min(2, len(args))], " "), err)
}

func lastLines(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-8):], "\n")
}

// module is the output of "go mod edit -json".
type module struct {
	Go      string
	Godebug []struct{ Key, Value string }
	Require []struct{ Path, Version string }
}

// staged is the version under which k8s.io/kubernetes requires the modules that live in its own repository.
const staged = "v0.0.0"

// wrapper returns a go.mod that requires the release. The modules of the same repository are published with minor
// version for major: v1.36.3 goes with v0.36.3.
func (m *module) wrapper(c Command) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "module viplab.invalid/%s\n\ngo %s\n\n", c.Name, atLeast(m.Go, "1.24"))
	for _, d := range m.godebug() {
		fmt.Fprintf(&b, "godebug %s\n", d)
	}
	if c.Source == "" {
		fmt.Fprintf(&b, "\ntool %s\n", c.pkg())
	}
	fmt.Fprintf(&b, "\nrequire %s %s\n\n", c.module(), c.Version)
	for _, r := range m.Require {
		if r.Version == staged && strings.HasPrefix(r.Path, "k8s.io/") {
			fmt.Fprintf(&b, "replace %s => %s v0.%s\n", r.Path, r.Path, strings.TrimPrefix(c.Version, "v1."))
		}
	}
	return b.Bytes()
}

// godebug keeps the run-time behaviour that the release was built with, which would otherwise follow our own go line.
func (m *module) godebug() []string {
	if len(m.Godebug) == 0 {
		parts := strings.Split(m.Go, ".")
		return []string{"default=go" + strings.Join(parts[:min(2, len(parts))], ".")}
	}
	var out []string
	for _, d := range m.Godebug {
		out = append(out, d.Key+"="+d.Value)
	}
	return out
}

// atLeast returns the later of two versions of Go; tool lines exist since 1.24.
func atLeast(have, least string) string {
	if version.Compare("go"+have, "go"+least) < 0 {
		return least
	}
	return have
}

// linkerFlags tell a command of Kubernetes its version, as the release's own build does.
func (c Command) linkerFlags() string {
	flags := []string{"-s", "-w"}
	if c.Module != "" {
		return strings.Join(flags, " ")
	}
	version, minor := c.Version, strings.Split(c.Version, ".")[1]
	for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		flags = append(flags, "-X", pkg+".gitVersion="+version, "-X", pkg+".gitMajor=1", "-X", pkg+".gitMinor="+minor)
	}
	return strings.Join(flags, " ")
}
