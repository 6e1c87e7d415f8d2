"""What a person does and sees in the web client."""
