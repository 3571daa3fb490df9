// SPDX-License-Identifier: Apache-2.0

// Package container runs programs in the network namespace of a pod, as a container runtime does.
//
// A pod has a uts and an ipc namespace, which its containers share. A container has a pid namespace, whose process 1 is
// its program, and a mount namespace. Its root is an overlay: the machine's files, or a folder with the files of an
// image, below a tmpfs that takes what the container writes. It has a /proc of its own processes, a minimal /dev, a
// /sys that is read-only, and an empty /tmp and /run.
//
// Nothing that a program does reaches the machine: its files are the overlay's lower layer, its devices are not there,
// the settings below /proc/sys are read-only, and the capabilities that reach beyond the namespaces are gone, also for
// programs of root. The kernel removes the files, mounts and processes of a container when its process 1 ends.
//
// A container starts as a copy of this executable (/proc/self/exe), which sets up the mounts and then becomes the
// program. The package does that when it is initialised, so a program that imports it needs no further call.
package container
