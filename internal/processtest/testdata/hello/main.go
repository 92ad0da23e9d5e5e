// Command hello is what the test of testbuild builds.
package main

func main() { println("hello") }
