// SPDX-License-Identifier: Apache-2.0

package xtables

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"

	"github.com/viplab/viplab/internal/lab/program"
)

// restorer is a restore program that carries out one script after the other. Most scripts take less time than the
// program takes to start. With --verbose the program prints the comments of its input, so that a comment behind a
// script shows that everything before it is done. Android's netd keeps iptables-restore running in the same way.
type restorer struct {
	cmd    *exec.Cmd
	input  io.WriteCloser
	output *bufio.Reader
	stderr *program.Memory
	lines  int // read so far
	bytes  int // read so far
}

// restorerLimit is the number of bytes of scripts after which a new program takes over: the program does not free what
// it has allocated for a rule.
const restorerLimit = 1 << 20

// done is the comment behind every script.
const done = "# done\n"

// startRestorer starts the program in the way that start does, such as NS.Start.
func startRestorer(cmd *exec.Cmd, start func(*exec.Cmd) error) (*restorer, error) {
	stderr, err := program.NewMemory("stderr")
	if err != nil {
		return nil, err
	}
	r := &restorer{cmd: cmd, stderr: stderr}
	cmd.Stderr = stderr.File
	if r.input, err = cmd.StdinPipe(); err != nil {
		return nil, errors.Join(err, stderr.Close())
	}
	output, err := cmd.StdoutPipe()
	if err != nil {
		return nil, errors.Join(err, stderr.Close())
	}
	r.output = bufio.NewReader(output)
	if err := start(cmd); err != nil {
		return nil, errors.Join(err, stderr.Close())
	}
	return r, nil
}

// carryOut returns when the program has carried out the script. After an error the program has ended.
func (r *restorer) carryOut(ctx context.Context, script []byte) error {
	stop := context.AfterFunc(ctx, func() { _ = r.cmd.Process.Kill() }) // fails if the program has ended
	defer stop()
	written := make(chan error, 1)
	go func() {
		_, err := r.input.Write(append(script, done...))
		written <- err
	}()
	for line, err := "", error(nil); line != done; {
		if line, err = r.output.ReadString('\n'); err != nil {
			return r.failure(ctx, <-written)
		}
	}
	r.lines += bytes.Count(script, []byte("\n")) + 1
	r.bytes += len(script)
	if !stop() {
		return context.Cause(ctx) // the program is being killed
	}
	return <-written
}

// failure returns why the program has ended.
func (r *restorer) failure(ctx context.Context, written error) error {
	err := r.cmd.Wait()
	if err == nil {
		err = fmt.Errorf("it has ended before its input: %w", written)
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return r.stderr.Explain(err)
}

// worn reports whether another program should take over.
func (r *restorer) worn() bool { return r.bytes > restorerLimit }

// close ends the program.
func (r *restorer) close() {
	_ = r.cmd.Process.Kill() // fails if the program has ended
	_ = r.cmd.Wait()         // it was killed, or has been waited for
	_ = r.stderr.Close()     // a file in memory
}
