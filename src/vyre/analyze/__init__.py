"""What is true of a program? Facts that the checker demands and that lowering and the optimizer build on."""
